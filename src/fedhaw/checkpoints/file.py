"""One checkpoint file: the arrays of all parts as safetensors, their JSON in its metadata.

Any safetensors reader can look inside: array `previous` of part `state` is called
`state.previous`. A checksum over arrays and JSON tells whether the file was damaged later, and
nothing is ever unpickled.
"""

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from fedhaw.checkpoints import first_formats
from fedhaw.checkpoints.checksum import MISMATCH, checksum, pieces
from fedhaw.checkpoints.parts import CheckpointError, DamagedCheckpoint, Part, Parts
from fedhaw.files import replacing

FORMAT = "fedhaw-checkpoint"
VERSION = 2

_DTYPES: dict[np.dtype[np.generic], str] = {
    np.dtype(f"{kind.lower()}{size}"): f"{kind}{8 * size}"
    for kind, sizes in (("F", (2, 4, 8)), ("I", (1, 2, 4, 8)), ("U", (1, 2, 4, 8)))
    for size in sizes
}
_DTYPES |= {np.dtype(np.bool_): "BOOL", np.dtype(ml_dtypes.bfloat16): "BF16"}
"""What safetensors calls each type."""


def write(path: str | os.PathLike[str], parts: Parts) -> None:
    """A file of all parts, whole or not at all; arrays are written from where they lie.

    Raises:
        CheckpointError: an array is of a type that the format does not know.
        FileWriteError: the file cannot be written; what stood there is untouched.
    """
    arrays = {
        f"{part}.{name}" if name else part: _little_endian(array)
        for part, content in parts.items()
        for name, array in content.arrays.items()
    }
    for name, array in arrays.items():
        if array.dtype not in _DTYPES:
            raise CheckpointError(
                f"Array {name!r} is of {array.dtype}, which cannot be stored; use real numbers."
            )
    facts = {part: content.facts for part, content in parts.items()}
    # As it will be read: JSON makes texts of all keys, and may then sort them in another order.
    document = json.loads(json.dumps({"version": VERSION, "parts": facts}))
    document["checksum"] = checksum(document, arrays)
    with replacing(path) as temporary, temporary.open("wb") as file:
        _write(file, arrays, {FORMAT: json.dumps(document)})


def read(path: str | os.PathLike[str]) -> dict[str, Part]:
    """The parts of a checkpoint; each array lies in memory of its own.

    Raises:
        DamagedCheckpoint: the file is missing, damaged, or not a checkpoint.
        CheckpointError: it was written by a newer fedhaw.
    """
    file = Path(path)
    try:
        with safe_open(file, framework="numpy") as content:
            metadata = content.metadata() or {}
        arrays = load_file(file)
        document = json.loads(metadata.get(FORMAT, "{}"))
        version = document.get("version") or int(metadata.get("version", 0))
        if version > VERSION or (FORMAT not in metadata and version > 1):
            raise CheckpointError(f"{file} was written by a newer fedhaw; upgrade fedhaw to go on.")
        if version < VERSION:
            facts, arrays = first_formats.read(document or metadata, arrays)
        else:
            facts = document["parts"]
            if document.pop("checksum") != checksum(document, arrays):
                raise ValueError(MISMATCH)
        return {part: Part(_arrays(part, arrays), facts[part]) for part in facts}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise DamagedCheckpoint(file, error) from error


def _write(
    file: IO[bytes], arrays: Mapping[str, NDArray[np.generic]], metadata: dict[str, str]
) -> None:
    """The safetensors format: length of the header, header, then the arrays one after the other.

    The library's own writer takes only arrays without gaps between their rows, and FedHAW's state,
    as large as all clients' models, is columns of a wider matrix: it would have to be copied.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _DTYPES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in arrays.values():
        for piece in pieces(array):
            file.write(piece)


def _little_endian(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array


def _arrays(part: str, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Those of the file's arrays that belong to a part, by their names in it."""
    own = {name.partition("."): array for name, array in arrays.items()}
    return {name: array for (owner, _, name), array in own.items() if owner == part}

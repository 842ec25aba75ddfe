"""Where a federation stands, in one safetensors file that replaces its predecessor.

The file holds the global model, the rule's state, the round, and who the clients are. It is written
array by array straight from memory, because the state of FedHAW is as large as all the clients'
models together and must not be copied to be saved; and it is renamed into place, so that a server
killed at any moment finds the last whole one.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedhaw.files import replacing
from fedhaw.flower.errors import CheckpointError

FORMAT = "fedhaw-flower-checkpoint"
VERSION = 1
MODEL, STATE, REST = "model", "state.", "rest."

_DTYPES: dict[np.dtype[Any], str] = {
    np.dtype(kind): name
    for kind, name in (
        (np.float64, "F64"),
        (np.float32, "F32"),
        (np.float16, "F16"),
        (ml_dtypes.bfloat16, "BF16"),
        (np.int64, "I64"),
        (np.int32, "I32"),
        (np.int16, "I16"),
        (np.int8, "I8"),
        (np.uint64, "U64"),
        (np.uint32, "U32"),
        (np.uint16, "U16"),
        (np.uint8, "U8"),
        (np.bool_, "BOOL"),
    )
}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A federation after a round.

    Attributes:
        server_round: the last finished round, counted from 1 as Flower does.
        model: (P,) the global model after it.
        rest: whole-number arrays of the model, by name.
        state: the rule's arrays, as `fedhaw.rules.pack_state` gives them.
        state_description: the rest of the rule's state.
        examples: each client's last known number of samples.
        nodes: the client each node last spoke for; nodes keep their numbers if the SuperLink has
            a database.
        cohort: how many nodes of the round answered, to be waited for by whoever goes on.
        arrays: names, shapes and dtypes of the model's arrays: what the file is a model of.
        rule: which rule made it, in words.
        recent_lengths: what the guard on long updates remembers.
    """

    server_round: int
    model: NDArray[Any]
    rest: Mapping[str, NDArray[Any]]
    state: Mapping[str, NDArray[Any]]
    state_description: str
    examples: Mapping[str, float]
    nodes: Mapping[int, str]
    cohort: int
    arrays: list[list[str]]
    rule: str
    recent_lengths: tuple[float, ...] = ()


def save(checkpoint: Checkpoint, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint, all of it or nothing.

    Raises:
        FileWriteError: the disk is full or the folder cannot be written.
    """
    arrays = {
        MODEL: checkpoint.model,
        **{STATE + name: array for name, array in checkpoint.state.items()},
        **{REST + name: array for name, array in checkpoint.rest.items()},
    }
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "round": str(checkpoint.server_round),
        "cohort": str(checkpoint.cohort),
        "state": checkpoint.state_description,
        "examples": json.dumps(checkpoint.examples),
        "nodes": json.dumps(dict(checkpoint.nodes)),
        "arrays": json.dumps(checkpoint.arrays),
        "rule": checkpoint.rule,
        "recent_lengths": json.dumps(checkpoint.recent_lengths),
    }
    metadata["checksum"] = _checksum(metadata, arrays)
    with replacing(path) as temporary, temporary.open("wb") as file:
        _write(file, arrays, metadata)


def load(path: str | os.PathLike[str]) -> Checkpoint | None:
    """Read a checkpoint; None when there is no such file.

    Raises:
        CheckpointError: the file is damaged or is no checkpoint of a Flower federation.
    """
    file = Path(path)
    if not file.exists():
        return None
    try:
        with safe_open(file, framework="numpy") as content:
            metadata = dict(content.metadata() or {})
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{file} is not a checkpoint of a Flower federation.")
        if int(metadata["version"]) > VERSION:
            raise CheckpointError(f"{file} was written by a newer fedhaw; upgrade to go on.")
        checksum = metadata.pop("checksum", None)
        if checksum != _checksum(metadata, arrays):
            raise CheckpointError(
                f"{file} is damaged: its checksum does not match; remove it to start afresh."
            )
        return Checkpoint(
            server_round=int(metadata["round"]),
            model=arrays.pop(MODEL),
            state=_under(STATE, arrays),
            rest=_under(REST, arrays),
            state_description=metadata["state"],
            examples=json.loads(metadata["examples"]),
            nodes={int(n): str(c) for n, c in json.loads(metadata["nodes"]).items()},
            cohort=int(metadata["cohort"]),
            arrays=json.loads(metadata["arrays"]),
            rule=metadata["rule"],
            recent_lengths=tuple(json.loads(metadata.get("recent_lengths", "[]"))),
        )
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{file} cannot be read as a checkpoint ({error}); remove it to start afresh."
        ) from error


def _write(file: IO[bytes], arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    """The safetensors format: length of the header, header, then the arrays one after the other."""
    header: dict[str, Any] = {"__metadata__": metadata}
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
        for part in _parts(array):
            file.write(part)


def _checksum(metadata: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> str:
    total = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        total = zlib.crc32(name.encode(), total)
        for part in _parts(arrays[name]):
            total = zlib.crc32(part, total)
    return f"{total:08x}"


def _parts(array: NDArray[Any]) -> Iterator[memoryview]:
    """An array's bytes: all at once, or row by row where there are gaps between the rows."""
    if array.ndim > 1 and not array.flags.c_contiguous:
        for row in array:
            yield from _parts(row)
    elif array.size:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}

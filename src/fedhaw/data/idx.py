"""The idx format of MNIST and Fashion-MNIST, plain or gzipped.

    byte 0-1   zero
    byte 2     type of the values; 8 = uint8, the only one these data sets use
    byte 3     number of dimensions D
    4 D bytes  the dimensions, big-endian
    then       the values, row by row

A header may promise anything, so nothing is allocated on its word: the length of a plain file is
compared with it first, and a gzipped one is unpacked piece by piece up to what was promised.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.errors import DataError

UINT8 = 8
MOST_DIMENSIONS = 4
MOST_BYTES = 1 << 31
"""More than this in one idx file is refused; the largest of the known ones has 47 MB."""

_CHUNK = 1 << 20


def read_idx(path: Path, shape: tuple[int, ...] | None = None) -> NDArray[np.uint8]:
    """The array in an idx file of uint8 values.

    Args:
        path: the file; gzipped if its first two bytes say so, whatever its name.
        shape: the dimensions it must have, if they are known.

    Returns:
        The array, writable, of the shape in the header.

    Raises:
        DataError: it is not such a file, is damaged, or has other dimensions.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if zipped:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    return _read(unpacked.read, path, shape, available=None)
            return _read(file.read, path, shape, available=path.stat().st_size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged ({error}); replace it by a fresh copy.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def idx_pieces(array: NDArray[np.uint8]) -> Iterator[bytes | memoryview]:
    """The bytes of the idx file that would hold `array`, for its checksum or for writing it."""
    yield struct.pack(f">HBB{array.ndim}I", 0, UINT8, array.ndim, *array.shape)
    yield np.ascontiguousarray(array).data.cast("B")


def _read(
    read: Callable[[int], bytes],
    path: Path,
    shape: tuple[int, ...] | None,
    available: int | None,
) -> NDArray[np.uint8]:
    """The values, read after the header; `available` is the length of a file that is not packed."""
    dimensions = _read_header(read, path)
    if shape is not None and dimensions != shape:
        raise DataError(f"{path} holds an array of shape {dimensions}, not {shape} as it should.")
    length = prod(dimensions)
    header = 4 + 4 * len(dimensions)
    if length > MOST_BYTES:
        raise DataError(
            f"The header of {path} promises {length:,} bytes, more than any idx file here has; "
            "replace it by a fresh copy."
        )
    if available is not None and available != header + length:
        raise DataError(
            f"The header of {path} promises {length:,} bytes, but {available - header:,} follow; "
            "replace it by a fresh copy."
        )
    values = bytearray()
    while len(values) <= length:  # asks for one byte too many, to notice a file that is too long
        piece = read(min(_CHUNK, length + 1 - len(values)))
        if not piece:
            break
        values += piece
    if len(values) != length:
        raise DataError(
            f"{path} holds {'fewer' if len(values) < length else 'more'} than the {length:,} bytes "
            "its header promises; replace it by a fresh copy."
        )
    return np.frombuffer(values, dtype=np.uint8).reshape(dimensions)


def _read_header(read: Callable[[int], bytes], path: Path) -> tuple[int, ...]:
    start = read(4)
    if len(start) < 4 or start[:2] != b"\0\0":
        raise DataError(f"{path} is not an idx file: it begins with {start!r}.")
    kind, count = start[2], start[3]
    if kind != UINT8 or not 1 <= count <= MOST_DIMENSIONS:
        raise DataError(
            f"{path} is an idx file of type {kind} with {count} dimensions; only uint8 (type 8) "
            f"with 1 to {MOST_DIMENSIONS} dimensions is read here."
        )
    packed = read(4 * count)
    if len(packed) < 4 * count:
        raise DataError(f"{path} ends within its header; replace it by a fresh copy.")
    return struct.unpack(f">{count}I", packed)

"""The idx format of MNIST and Fashion-MNIST, plain or gzipped: a header, then uint8 row by row.

    byte 0-1   zero
    byte 2     type of the values; 8 = uint8, the only one these data sets use
    byte 3     number of dimensions D
    4 D bytes  the dimensions, big-endian

The dimensions and the checksum of each published file are known, so nothing that a file says of
itself is believed: as many bytes are read as it should have, and one more, and these are compared.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.checksums import check_md5, md5_of
from fedhaw.data.errors import reading


def read_idx(path: Path, shape: tuple[int, ...], md5: str) -> NDArray[np.uint8]:
    """The array in a published idx file, writable.

    Args:
        path: the file; gzipped if its first two bytes say so, whatever its name.
        shape: the dimensions it must have.
        md5: of the plain file.
    """
    begin = len(_header(shape))
    with reading(path, EOFError, zlib.error, gzip.BadGzipFile), path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = (gzip.GzipFile(fileobj=file) if packed else file).read(begin + prod(shape) + 1)
    check_md5(md5_of([content]), md5, str(path))
    return np.frombuffer(bytearray(content), dtype=np.uint8, offset=begin).reshape(shape)


def idx_pieces(array: NDArray[np.uint8]) -> Iterator[bytes | memoryview]:
    """The bytes of the idx file that would hold `array`, for its checksum or for writing it."""
    yield _header(array.shape)
    yield np.ascontiguousarray(array).data.cast("B")


def _header(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)

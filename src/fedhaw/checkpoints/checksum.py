"""A checksum over everything that a checkpoint holds."""

import json
import zlib
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

MISMATCH = "its checksum does not match"


def checksum(
    document: Mapping[str, object],
    arrays: Mapping[str, NDArray[np.generic]],
    *,
    shapes: bool = True,
) -> str:
    """Eight hex digits over a JSON document and, in the order of their names, arrays.

    Args:
        document: all of it but the checksum itself.
        arrays: by name.
        shapes: whether the arrays' types and shapes count; the first Flower format left them out.
    """
    total = zlib.crc32(json.dumps(document, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        label = f"{name}{array.dtype}{array.shape}" if shapes else name
        total = zlib.crc32(label.encode(), total)
        for piece in pieces(array):
            total = zlib.crc32(piece, total)
    return f"{total:08x}"


def pieces(array: NDArray[np.generic]) -> Iterator[memoryview]:
    """An array's bytes: all at once, or row by row where there are gaps between the rows."""
    if array.ndim > 1 and not array.flags.c_contiguous:
        for row in array:
            yield from pieces(row)
    elif array.size:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

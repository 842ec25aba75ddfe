"""Flower's arrays as bytes, read and written without a copy more than is needed.

A Flower `Array` carries the bytes of a .npy file. Reading one through `Array.numpy()` copies it
once into a new array, and adding that to a sum reads it again. Here the numbers are looked at where
they lie in the message, so that the only copy made is the one into the matrix of client models.
"""

import io
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from fedhaw.errors import shown

NUMPY = "numpy.ndarray"


class Unreadable(ValueError):
    """Bytes that do not hold the array they should; the text says why, in a few words."""


def decoded(array: Array) -> NDArray[Any]:
    """The array's values, read-only, without copying them.

    Raises:
        Unreadable: the bytes are not those of one plain NumPy array.
    """
    if array.stype != NUMPY:
        raise Unreadable(f"is serialised as {shown(array.stype)}, not {NUMPY!r}")
    data = array.data
    try:
        stream = io.BytesIO(data)  # shares the bytes: CPython copies them only when written to
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(stream)
        if dtype.hasobject:
            raise Unreadable("holds Python objects")
        count, offset = prod(shape), stream.tell()
        if offset + count * dtype.itemsize != len(data):
            raise Unreadable("has more or fewer bytes than its shape asks for")
        flat = np.frombuffer(data, dtype, count, offset) if count else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")
    except Unreadable:
        raise
    except Exception as error:  # a header from outside can fail in any way
        raise Unreadable("is not a NumPy array") from error


def decoded_flat(
    array: Array, header: bytes, count: int, dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    """(count,) as `decoded`, at once, if the bytes begin with just this header; None if not.

    Args:
        array: what came off the wire.
        header: what NumPy writes for the expected shape and dtype, from `npy_header`.
        count: how many numbers the shape has, more than 0.
        dtype: of each.
    """
    data = array.data
    whole = len(header) + count * dtype.itemsize
    if array.stype != NUMPY or len(data) != whole or not data.startswith(header):
        return None
    return np.frombuffer(data, dtype, count, len(header))


def pack(values: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Values, contiguous, of any shape with the right number of them, as Flower's array."""
    values = np.ascontiguousarray(values, dtype=dtype)
    data = b"".join((npy_header(shape, dtype.str), values.data if values.size else b""))
    return Array(dtype=str(dtype), shape=shape, stype=NUMPY, data=data)


@lru_cache(maxsize=4096)
def npy_header(shape: tuple[int, ...], descr: str) -> bytes:
    """The first bytes of the .npy file of an array of this shape and `dtype.str`."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()

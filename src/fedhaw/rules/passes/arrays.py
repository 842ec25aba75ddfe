"""Arrays from one backend, device and dtype to another."""

from typing import Any

import array_api_compat
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Array, Vector, namespace


def to_numpy(array: Array) -> NDArray[Any]:
    """An array of any backend in NumPy, bit for bit."""
    if isinstance(array, np.ndarray):
        return array
    if not array_api_compat.is_torch_array(array):
        return np.asarray(array)
    array = array.detach().cpu()
    if str(array.dtype) == "torch.bfloat16":
        # NumPy sees torch's bfloat16 only through its bits.
        bits: NDArray[Any] = array.view(namespace(array).int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    return np.asarray(array.numpy())


def native(array: Array) -> Array:
    """NumPy's view of a tensor in the processor's memory, to read and to write; others as they are.

    torch's threads wait for each other after every operation, NumPy's work is shared out by
    `blocks`. Tensors of 16 bits are left to torch, which has instructions for them.
    """
    if isinstance(array, np.ndarray) or not array_api_compat.is_torch_array(array):
        return array
    return array.detach().numpy() if array.device.type == "cpu" and array.itemsize > 2 else array


def to_vector(array: Array) -> Vector:
    """A small array of any backend as a float64 NumPy array."""
    return np.asarray(to_numpy(array), dtype=np.float64)


def like(reference: Array, values: Array, *, keep_dtype: bool = False) -> Array:
    """`values` on the backend and device of `reference`, in its dtype unless `keep_dtype`."""
    if isinstance(reference, np.ndarray):
        values = to_numpy(values)
    else:
        xp, device, view = (
            namespace(reference),
            array_api_compat.device(reference),
            native(reference),
        )
        if isinstance(values, np.ndarray) and isinstance(view, np.ndarray) and not keep_dtype:
            values = astype(values, view.dtype)
        if isinstance(values, np.ndarray) and values.dtype == ml_dtypes.bfloat16:
            values = xp.asarray(values.view(np.int16), device=device).view(xp.bfloat16)
        else:
            values = xp.asarray(values, device=device)
    return values if keep_dtype else astype(values, reference.dtype)


def astype(array: Array, dtype: Any) -> Array:
    """`array` in `dtype`; itself if it has it already."""
    if array.dtype == dtype:
        return array
    if isinstance(array, np.ndarray):
        return array.astype(dtype)  # the method knows ml_dtypes' types, the function does not
    return namespace(array).astype(array, dtype)

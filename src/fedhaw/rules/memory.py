"""Memory for the rules' results that is used again once nobody holds what lies in it.

Memory fresh from the system is zeroed, page by page, at its first touch. A server makes a model of
the same size every round and lets go of an older one, so the memory of the older one serves the
next. Without that a round of K = 10 and P = 11,173,962 (ResNet-18) takes, in processor time on one
thread (`leases` of benchmarks/server_step.py, before torch's tensors were worked on by NumPy):

    torch    FedAvg 1.9 times as long (62 for 32 ms), FedHAW 1.35 times (134 for 99 ms)
    NumPy    FedAvg 1.1 times as long (41 for 37 ms), FedHAW the same   (113 ms)

An `out=` argument would save as much, but every rule and every caller would have to pass it on, and
a caller who keeps a model would find it overwritten.

Nobody has to give anything back. An array, all its views, and a torch tensor made of it keep their
memory alive through a lease, and when the last of them is gone the lease returns it.
"""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Array, namespace
from fedhaw.rules.blocks import on_cpu

WORTH_KEEPING = 1 << 17
"""Bytes below which the allocator has memory at hand; above, it may ask the system every time."""

_LENT = ("float32", "float64")
"""The types in which torch takes NumPy's memory for its own."""

_free: deque[NDArray[np.uint8]] = deque(maxlen=2)
"""What waits for use: no more than a round of any rule asks for."""


class Lease:
    """The holder of memory for an array; gives it back when the array and its views are gone."""

    def __init__(
        self, memory: NDArray[np.uint8], give_back: Callable[[NDArray[np.uint8]], None]
    ) -> None:
        self._memory, self._give_back = memory, give_back
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._give_back(self._memory)


def vector_like(reference: Array) -> Array:
    """A vector of the shape, dtype and device of `reference`; what it holds is undefined."""
    xp = namespace(reference)
    if reference.nbytes < WORTH_KEEPING or not on_cpu(reference):
        return xp.empty_like(reference)
    dtype = str(reference.dtype).removeprefix("torch.")
    if dtype not in _LENT:
        return xp.empty_like(reference)
    vector = np.asarray(Lease(_memory(reference.nbytes), _free.append)).view(dtype)
    return vector if isinstance(reference, np.ndarray) else xp.from_numpy(vector)


def release() -> None:
    """The return to the system of memory that waits for use."""
    _free.clear()


def _memory(size: int) -> NDArray[np.uint8]:
    try:
        memory = _free.pop()
    except IndexError:
        return np.empty(size, np.uint8)
    if memory.size == size:
        return memory
    # Another model is at work now: what the last one left is of no use.
    _free.clear()
    return np.empty(size, np.uint8)

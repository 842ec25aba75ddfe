"""How long vectors are worked on: in blocks that stay in cache, by all cores.

Where the blocks begin depends on the shapes alone, and what they give is taken in their order, so
that results do not depend on the number of cores. torch's tensors in the processor's memory are
worked on by NumPy too (`passes.arrays.native`), in the same blocks and by the same threads.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import array_api_compat
import numpy as np

from fedhaw.rules.base import Array
from fedhaw.rules.threads import available_cores, one_blas_thread, share_out

_T = TypeVar("_T")
_R = TypeVar("_R")

_F = TypeVar("_F", bound=Callable[..., Any])


def quietly(function: _F) -> _F:
    """The function without BLAS's threads, and without warnings.

    What is not finite is looked for afterwards, by `guards.checked`.
    """

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            return function(*args, **options)

    return cast("_F", called)


# How many elements to handle at a time: measured, see benchmarks/server_step.py.
_READ_BLOCK = 1_310_720  # of a matrix that is only read
_WRITTEN_BLOCK = 327_680  # of a matrix beside which one like it is written
_VECTOR_BLOCK = 131_072  # of one vector, a few of which are in use at a time
_DEVICE_BLOCK = 1 << 26  # of anything that is not in the processor's memory

_ONE_CORE = 1 << 24
"""Bytes up to which one core does all. The matrix is in cache then, and on a busy machine threads
that wait for each other cost more than a second core brings."""


def column_blocks(W: Array, written: bool = False) -> list[slice]:
    """Blocks of the columns of a matrix, smaller where one like it is written beside."""
    return _cut(W.shape[1], _columns(W, _WRITTEN_BLOCK if written else _READ_BLOCK))


def vector_blocks(vector: Array) -> list[slice]:
    """Blocks of a vector."""
    return _cut(vector.shape[0], _VECTOR_BLOCK if on_cpu(vector) else _DEVICE_BLOCK)


def layer_blocks(layers: Sequence[slice], W: Array) -> list[tuple[int, slice]]:
    """Blocks of the columns of a matrix, each within one layer, with the layer's number."""
    size = _columns(W, _WRITTEN_BLOCK)
    return [
        (index, slice(layer.start + block.start, layer.start + block.stop))
        for index, layer in enumerate(layers)
        for block in _cut(layer.stop - layer.start, size)
    ]


@quietly
def in_order(
    array: Array, worker: Callable[[], Callable[[_T], _R]], tasks: Sequence[_T]
) -> list[_R]:
    """What workers make of the tasks, in order; on NumPy there is one worker a core.

    NumPy lets go of the interpreter lock while it works. A small array has one worker on any
    machine, and so has one on another device, which spreads its work by itself.
    """
    cores = min(available_cores(), len(tasks)) if shared_out(array) else 1
    if cores == 1:
        function = worker()
        return [function(task) for task in tasks]
    results: dict[int, _R] = {}
    waiting = iter(enumerate(tasks))

    @quietly
    def work() -> None:
        function = worker()
        for index, task in waiting:
            results[index] = function(task)

    share_out(work, cores)
    return [results[index] for index in range(len(tasks))]


def each(array: Array, action: Callable[[_T], None], tasks: Sequence[_T]) -> None:
    """An action on every task, by all cores."""
    in_order(array, lambda: action, tasks)


def shared_out(array: Array) -> bool:
    """Whether all cores work on an array, rather than one, or a device that has its own ways."""
    return isinstance(array, np.ndarray) and array.nbytes > _ONE_CORE


def on_cpu(array: Array) -> bool:
    """Whether an array lies in the processor's own memory."""
    return isinstance(array, np.ndarray) or str(array_api_compat.device(array)) == "cpu"


def _columns(W: Array, elements: int) -> int:
    # Never so narrow that a row's piece is a few cache lines.
    return max((elements if on_cpu(W) else _DEVICE_BLOCK) // int(W.shape[0]), 256)


def _cut(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]

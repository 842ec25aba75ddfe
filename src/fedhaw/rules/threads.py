"""The one pool of threads, for work in which NumPy lets go of the interpreter lock.

NumPy's BLAS has threads of its own, which wait for each other at the end of every call and spin for
a while after it. On a machine that does something else besides, one thread that is not running
holds up all, again and again. So while the pool works BLAS has one thread, and each thread of the
pool takes the next task when it is done with one.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_MOST = [sys.maxsize]


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return min(_MOST[0], len(os.sched_getaffinity(0)))
    return min(_MOST[0], os.cpu_count() or 1)


def limit_cores(most: int) -> None:
    """A limit on `available_cores`, for a process that shares the machine with others like it."""
    _MOST[0] = most


def share_out(work: Callable[[], None], threads: int) -> None:
    """`work` done by so many threads at once, the calling one among them, until all return.

    Each takes its next task from where all others take theirs: tasks differ in size, and cores in
    speed.
    """
    if threads <= 1:
        work()
        return
    others = [pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()


class _OneBlasThread:
    """A context in which NumPy's BLAS has one thread; several threads may be within at a time."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nobody is within."""
        self._lock, self._within, self._before = Lock(), 0, [1]

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before = [library.get_num_threads() for library in _blas()]
                self._set([1] * len(self._before))
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                self._set(self._before)

    def _set(self, numbers: list[int]) -> None:
        for library, threads in zip(_blas(), numbers, strict=True):
            library.set_num_threads(threads)


one_blas_thread = _OneBlasThread()


@cache
def _blas() -> list[Any]:
    libraries: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries


def pool() -> ThreadPoolExecutor:
    """The pool, with a thread for each core that the process may use now."""
    return _pool(available_cores())


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fedhaw")


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads: it makes a pool of its own.
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=one_blas_thread.begin)

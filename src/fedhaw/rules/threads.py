"""The one pool of threads, for work in which NumPy lets go of the interpreter lock."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

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
    others = [pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()


def pool() -> ThreadPoolExecutor:
    """The pool, with a thread for each core that the process may use now."""
    return _pool(available_cores())


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fedhaw")


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads: it makes a pool of its own.
    os.register_at_fork(after_in_child=_pool.cache_clear)

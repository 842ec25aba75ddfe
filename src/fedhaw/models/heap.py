"""Freed memory, kept for the next step of training.

A step of a convolutional network asks for a hundred tensors of some megabytes and frees them all.
glibc gives such memory back to the system at once, and the next step has to have it cleared page by
page: a sixth of the time of a narrow ResNet. So here it stays with the process.
"""

import ctypes
import os
from functools import cache

# Of glibc's malloc.h; the largest size that it does not map anew each time is 32 MiB.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
KEPT_BYTES = 2**30
LARGEST_KEPT = 2**25
GROWN_BY = 2**26


@cache
def keep_freed_memory() -> bool:
    """Whether freed memory stays with this process from now on, up to a gigabyte; glibc only."""
    if os.name != "posix":
        return False
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    return option is not None and all(
        option(*setting)
        for setting in (
            (_MMAP_THRESHOLD, LARGEST_KEPT),
            (_TRIM_THRESHOLD, KEPT_BYTES),
            (_TOP_PAD, GROWN_BY),
        )
    )

"""How many threads torch computes with; said here and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """A block, or a function, with one torch thread: sums are formed in one order on any machine.

    The number is that of the Python thread that enters; the others keep theirs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

"""Tensors that several processes see at once, in memory that needs no tidying up.

The memory has no name in any file system: it lives as long as some process has it open, so a
killed run leaves nothing behind, and no limit on /dev/shm applies.
"""

import math
import mmap
import os
import tempfile
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Handle:
    """What a child process needs to see the same tensor: an inherited descriptor and a shape."""

    descriptor: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def open(self) -> Tensor:
        """The tensor, over the same memory."""
        length = math.prod(self.shape)
        if not length:
            return torch.empty(self.shape, dtype=self.dtype)
        memory = mmap.mmap(self.descriptor, length * self.dtype.itemsize)
        return torch.frombuffer(memory, dtype=self.dtype).view(self.shape)


class SharedTensor:
    """A tensor, its handle, and the descriptor that keeps its memory reachable for children."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        descriptor = _anonymous_file()
        try:
            os.ftruncate(descriptor, math.prod(shape) * dtype.itemsize)
            self.handle = Handle(descriptor, shape, dtype)
            self.tensor = self.handle.open()
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def of(cls, tensor: Tensor) -> "SharedTensor":
        """A shared copy."""
        shared = cls(tuple(tensor.shape), tensor.dtype)
        shared.tensor.copy_(tensor)
        return shared

    def close(self) -> None:
        """The release of the descriptor; the memory goes when its last user does."""
        os.close(self.handle.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedhaw")
    with tempfile.TemporaryFile() as file:  # unlinked from the start, where there is no memfd
        return os.dup(file.fileno())

"""Vectors of many clients in a mapped file: the system keeps in memory what is in use.

A rule that remembers a vector of every client would fill the heap with N x P numbers. Here such a
vector is a row of a temporary file that has no name, so that nothing is left behind however the
process ends. It lies where `tempfile` puts files, which TMPDIR decides.

Nobody has to give a row back. An array and its views keep the row through a lease, and when the
last of them is gone the row serves the next vector of that size; when all rows of a size are gone,
so is their file.
"""

import mmap
import tempfile
from collections import deque
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError
from fedhaw.files import allocate
from fedhaw.rules.memory import Lease

_WORTH_MAPPING = 1 << 20
"""Bytes below which a vector stays in the heap."""

_FIRST_ROWS = 8
"""How many rows a file begins with; it then doubles, so that few mappings are open."""


class NoRoomForRows(FedhawError, OSError):
    """The disk has no room for the vectors of so many clients."""


class _File:
    """Rows of one size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows = _FIRST_ROWS
        self.free: deque[NDArray[np.uint8]] = deque()

    def row(self) -> NDArray[np.uint8]:
        """A row that nobody holds."""
        while True:
            try:
                return self.free.pop()
            except IndexError:
                self.free.extend(_mapped(self._rows, self._size))
                self._rows *= 2

    def give_back(self, row: NDArray[np.uint8]) -> None:
        """A row that nobody holds any more; whoever holds one holds its file by this method."""
        self.free.append(row)


_files: WeakValueDictionary[int, _File] = WeakValueDictionary()


def empty_row(reference: NDArray[np.generic]) -> NDArray[np.generic]:
    """(P,) a vector of the shape and dtype of `reference`; what it holds is undefined.

    Raises:
        NoRoomForRows: the disk is full.
    """
    if reference.nbytes < _WORTH_MAPPING:
        return np.empty_like(reference)
    file = _files.get(reference.nbytes)
    if file is None:
        file = _files.setdefault(reference.nbytes, _File(reference.nbytes))
    return np.asarray(Lease(file.row(), file.give_back)).view(reference.dtype)


def kept_row(vector: NDArray[np.generic]) -> NDArray[np.generic]:
    """(P,) a read-only copy of `vector`, mapped if it is large."""
    row = empty_row(vector)
    row[:] = vector
    row.flags.writeable = False
    return row


def _mapped(rows: int, size: int) -> NDArray[np.uint8]:
    """(rows, size) bytes of a new file."""
    try:
        with tempfile.TemporaryFile() as file:
            allocate(file.fileno(), rows * size)
            memory = mmap.mmap(file.fileno(), rows * size)
    except OSError as error:
        raise NoRoomForRows(
            f"There is no room for {rows} vectors of {size / 1e6:.0f} MB in {tempfile.gettempdir()}"
            f" ({error.strerror}); set TMPDIR to a folder on a disk that has it."
        ) from error
    return np.frombuffer(memory, dtype=np.uint8).reshape(rows, size)

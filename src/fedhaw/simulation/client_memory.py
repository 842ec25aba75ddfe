"""What each client remembers, kept so that no kill can tear it from its checkpoint.

A client's memory is a row of a mapped file. A row that a checkpoint speaks of is never written to:
new memory goes to a free row, and only when the client's upload has arrived does the client own
that row instead of its earlier one. A checkpoint holds who owns which row, with a checksum of each.
So the file may be left at any moment: whoever reads a checkpoint finds all rows it speaks of as
they were, and takes every other row for free. Rows become free again when no kept checkpoint has
them.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.checkpoints import Part
from fedhaw.clients import Vectors
from fedhaw.simulation.memory_file import MemoryFile, unusable
from fedhaw.simulation.vector_rows import RowLayout

FILE_NAME = "clients.rows"


class ClientMemories:
    """The memories of all clients.

    Args:
        example: the memory of a client that was never heard from.
        path: of the file; None for one without a name.
        part: of the checkpoint to go on from; None to begin.

    Raises:
        FileWriteError: the file cannot be made.
        CheckpointError: the file is missing, damaged or foreign.
    """

    def __init__(self, example: Vectors, path: Path | None, part: Part | None = None) -> None:
        self._example = example
        self._layout = RowLayout(example)
        described = self._layout.described()
        self._rows: dict[int, int] = {}
        self._checksums: dict[int, int] = {}
        # Rows of the last two checkpoints, which are kept.
        self._earlier: frozenset[int] = frozenset()
        self._last: frozenset[int] = frozenset()
        if part is None or path is None:
            self._file = MemoryFile.create(path, self._layout.size, described)
        else:
            token = str(part.facts.get("file"))
            self._file = MemoryFile.open(path, self._layout.size, described, token)
            try:
                self._take_up(path, part.arrays)
            except BaseException:
                self.close()
                raise
        held = self._held()
        self._free = [row for row in range(self._file.rows) if row not in held]

    def of(self, client: int) -> Vectors:
        """What a client remembers; not to be written to."""
        if client not in self._rows:
            return self._example
        return self._layout.views(self._file.row(self._rows[client]))

    def reserve(self, count: int) -> list[int]:
        """Free rows, as many as asked for; each comes back by `settle`."""
        before = self._file.rows
        self._file.grow(before + count - len(self._free))
        self._free.extend(range(before, self._file.rows))
        return [self._free.pop() for _ in range(count)]

    def place(self, row: int) -> Vectors:
        """A reserved row, for new memory."""
        return self._layout.views(self._file.row(row))

    def settle(self, reserved: Mapping[int, int], moved: Collection[int]) -> None:
        """The end of a round.

        Args:
            reserved: a reserved row for each client of the round.
            moved: the clients whose new memory counts.
        """
        for client, row in reserved.items():
            left: int | None = row
            if client in moved:
                left = self._rows.get(client)
                self._rows[client] = row
            if left is not None and left not in self._earlier and left not in self._last:
                self._free.append(left)

    def pack(self) -> Part:
        """What a checkpoint holds of the memories, which are on the disk then."""
        self._file.sync()
        known = self._checksums
        owned = self._rows.values()
        # Only rows that no checkpoint has had are new.
        self._checksums = {
            row: known[row] if row in self._last and row in known else self._file.checksum(row)
            for row in owned
        }
        arrays: dict[str, NDArray[np.generic]] = {
            "clients": np.array(list(self._rows), dtype=np.int64),
            "rows": np.array(list(owned), dtype=np.int64),
            "checksums": np.array([self._checksums[row] for row in owned], dtype=np.uint32),
            "earlier": np.array(sorted(self._last), dtype=np.int64),
        }
        return Part(arrays, {"file": self._file.token})

    def saved(self) -> None:
        """A new checkpoint is on the disk; rows that only the third last had are free."""
        dropped = self._earlier
        self._earlier, self._last = self._last, frozenset(self._rows.values())
        self._free.extend(dropped - self._held())

    def close(self) -> None:
        """The release of the file."""
        self._file.close()

    def _held(self) -> set[int]:
        return {*self._rows.values(), *self._earlier, *self._last}

    def _take_up(self, path: Path, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        try:
            clients, rows = arrays["clients"].tolist(), arrays["rows"].tolist()
            self._rows = dict(zip(clients, rows, strict=True))
            self._checksums = dict(zip(rows, arrays["checksums"].tolist(), strict=True))
            self._earlier = frozenset(arrays["earlier"].tolist())
        except (KeyError, ValueError) as error:
            raise unusable(path, "the checkpoint does not speak of it") from error
        self._last = frozenset(rows)
        self._file.verify(self._checksums)

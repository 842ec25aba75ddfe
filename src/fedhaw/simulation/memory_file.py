"""Rows of bytes in a mapped file: the system keeps in memory what is in use.

A file begins with a page that says what it is and has a token of its own, by which a checkpoint
knows it again. It only grows. What its rows mean, and which of them count, is for its user to say.
"""

import json
import mmap
import os
import secrets
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from fedhaw.checkpoints import CheckpointError
from fedhaw.files import allocate, writing
from fedhaw.simulation.errors import AFRESH

FORMAT, VERSION = "fedhaw-client-memory", 1
HEADER = mmap.PAGESIZE
FIRST_ROWS = 8


class MemoryFile:
    """An open file of rows.

    Attributes:
        token: tells this file from all others.
        rows: how many there are.
    """

    def __init__(self, descriptor: int, path: Path, row_bytes: int, token: str) -> None:
        self._descriptor, self._path, self._row_bytes = descriptor, path, row_bytes
        self.token = token
        self.rows = (os.fstat(descriptor).st_size - HEADER) // row_bytes
        self._map()

    @classmethod
    def create(cls, path: Path | None, row_bytes: int, vectors: Mapping[str, object]) -> Self:
        """A new file without rows, in place of one that may lie there.

        Args:
            path: where; None for a file without a name, which is gone with the process.
            row_bytes: the size of a row, a multiple of 64.
            vectors: what a row consists of.
        """
        token = secrets.token_hex(8)
        facts = {
            "format": FORMAT, "version": VERSION, "token": token, "row": row_bytes,
            "vectors": vectors,
        }  # fmt: skip
        place = path or Path(tempfile.gettempdir())
        with writing(place):
            if path is None:
                with tempfile.TemporaryFile() as file:
                    descriptor = os.dup(file.fileno())
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                # A new file, so that whoever still has the old one mapped keeps that.
                path.unlink(missing_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.pwrite(descriptor, json.dumps(facts).encode().ljust(HEADER), 0)
        return cls(descriptor, place, row_bytes, token)

    @classmethod
    def open(cls, path: Path, row_bytes: int, vectors: Mapping[str, object], token: str) -> Self:
        """The file of an earlier run."""
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise unusable(path, error.strerror or error) from error
        try:
            try:
                facts = json.loads(os.pread(descriptor, HEADER, 0))
                known = facts["format"] == FORMAT
            except (ValueError, KeyError, TypeError) as error:
                raise unusable(path, "it is not such a file") from error
            if not known or facts.get("version") != VERSION:
                raise unusable(path, "it is not such a file, or of a newer fedhaw")
            if facts.get("token") != token:
                raise unusable(path, "it belongs to another run")
            if facts.get("row") != row_bytes or facts.get("vectors") != vectors:
                raise unusable(
                    path, f"it holds {facts.get('vectors')}, but the algorithm keeps {vectors}"
                )
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, path, row_bytes, token)

    def row(self, index: int) -> Tensor:
        """(row_bytes,) a window onto a row."""
        start = HEADER + index * self._row_bytes
        return self._bytes[start : start + self._row_bytes]

    def grow(self, rows: int) -> None:
        """Room for so many rows at least."""
        if rows <= self.rows:
            return
        rows = max(rows, FIRST_ROWS, self.rows + self.rows // 4)
        with writing(self._path):
            allocate(self._descriptor, HEADER + rows * self._row_bytes)
        self.rows = rows
        self._map()

    def checksum(self, index: int) -> int:
        """A checksum of a row."""
        return zlib.crc32(self.row(index).numpy().data)

    def verify(self, checksums: Mapping[int, int]) -> None:
        """A check of rows against their checksums."""
        for index, expected in checksums.items():
            if not 0 <= index < self.rows:
                raise unusable(self._path, "it is cut short")
            if self.checksum(index) != expected:
                raise unusable(self._path, "its checksum does not match")

    def sync(self) -> None:
        """A wait until every row is on the disk."""
        with writing(self._path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """The release of the file; windows onto its rows stay good."""
        os.close(self._descriptor)

    def _map(self) -> None:
        length = HEADER + self.rows * self._row_bytes
        memory = mmap.mmap(self._descriptor, length)
        self._bytes = torch.frombuffer(memory, dtype=torch.uint8)


def unusable(path: Path, reason: object) -> CheckpointError:
    """The sentence on a file that a run cannot go on with."""
    return CheckpointError(
        f"The clients' memory {path} cannot be used ({reason}); put the file back, or {AFRESH}."
    )

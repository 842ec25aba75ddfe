"""A history that is still being written, read on from where the last look ended."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from fedhaw.history.errors import HistoryError
from fedhaw.history.file import Content, opened, parse, take
from fedhaw.history.records import RoundRecord

TAIL = 64
"""Bytes before the place of the last look, by which a file that was cut meanwhile is known."""


class HistoryFollower:
    """The content of a history file that grows; each look parses only the lines that are new.

    Args:
        path: the file; one that is compressed does not grow, and is read once.

    Attributes:
        content: what the file held at the last look.
        trouble: why it cannot be read further, or "".
    """

    content: Content
    trouble: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told = 0
        self._forget()

    def look(self) -> bool:
        """Whether something has changed since the last look, which is then in `content`."""
        trouble = self.trouble
        self.trouble = ""
        try:
            if self.path.suffix == ".gz":
                return self._read_once()
            with opened(self.path) as file:
                return self._read_on(file) or trouble != ""
        except HistoryError as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = f"{self.path} cannot be read: {error.strerror or error}."
        return self.trouble != trouble

    def news(self) -> Sequence[RoundRecord]:
        """The rounds since the last call; one that a resumed run writes again is no news."""
        self.look()
        fresh = self.content.records[self._told :]
        self._told += len(fresh)
        return fresh

    def _forget(self) -> None:
        self.content = Content()
        self.trouble = ""
        self._end, self._lines, self._tail = 0, 0, b""

    def _read_once(self) -> bool:
        if self.content.run is not None:
            return False
        self.content = parse(self.path)
        return True

    def _read_on(self, file: IO[bytes]) -> bool:
        changed = False
        file.seek(max(self._end - len(self._tail), 0))
        if file.read(len(self._tail)) != self._tail:
            # A run that went on from a checkpoint has cut its file and written other lines.
            changed = True
            self._forget()
            file.seek(0)
        for line in file:
            if not line.endswith(b"\n"):  # half of it is still to come
                break
            where = f"Line {self._lines + 1} of {self.path}"
            if line.strip():
                take(self.content, line, where, self._end + len(line))
                changed = True
            self._end += len(line)
            self._lines += 1
            self._tail = line[-TAIL:]
        return changed

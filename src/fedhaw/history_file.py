"""The file a run's history is written to: one JSON line a round, on disk as it happens.

The format is described in docs/history-format.md. A line is written and flushed in one piece, so
a reader sees whole rounds while the run goes on; a last line cut short by a crash is ignored. The
simulator and Flower deployments write the same file.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedhaw.errors import FedhawError
from fedhaw.files import lock, unwritable

FORMAT = 1
FILE_NAME = "history.jsonl"

Record = dict[str, Any]


class HistoryError(FedhawError, ValueError):
    """A file that is not a history, or not the one that is needed."""


@dataclass
class Content:
    """What a history file holds.

    Attributes:
        run: its first line; None if not even that is complete.
        records: the rounds.
        ends: for each round, the number of bytes up to the end of its line.
        header_end: the number of bytes up to the end of the first line.
        finished: whether the closing line is there.
    """

    run: Record | None = None
    records: list[Record] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    header_end: int = 0
    finished: bool = False


def parse(file: Path, *, as_far_as_possible: bool = False) -> Content:
    """Read a history; a last line without its newline does not count.

    Args:
        file: the history.
        as_far_as_possible: stop at the first line that cannot be, once the first one is there: a
            power cut may leave zeros or garbage behind what was safely on the disk.

    Raises:
        HistoryError: the file cannot be read, or is not a history.
    """
    content, end = Content(), 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                end += len(line)
                if line.endswith(b"\n"):
                    try:
                        _take(content, _decoded(line, number, file), number, end, file)
                    except HistoryError:
                        if content.run is None or not as_far_as_possible:
                            raise
                        content.finished = False  # what follows must go
                        break
    except OSError as error:
        raise HistoryError(f"{file} cannot be read: {error.strerror}.") from error
    return content


def _decoded(line: bytes, number: int, file: Path) -> Record:
    try:
        record = json.loads(line)
        if isinstance(record, dict):
            return record
    except (ValueError, RecursionError):
        pass
    raise HistoryError(f"Line {number} of {file} is not a JSON object; this is not a history.")


def _take(content: Content, record: Record, number: int, end: int, file: Path) -> None:
    kind = record.get("kind")
    if content.run is None:
        if kind != "run" or not isinstance(record.get("config"), dict):
            raise HistoryError(f'{file} does not begin with a line of kind "run"; is it a history?')
        if record.get("format") != FORMAT:
            raise HistoryError(
                f"{file} has history format {record.get('format')!r}, this fedhaw reads {FORMAT}; "
                "read it with the fedhaw that wrote it."
            )
        content.run, content.header_end = record, end
    elif kind == "round":
        if record.get("round") != len(content.records):
            raise HistoryError(
                f"Line {number} of {file} is round {record.get('round')!r} where round "
                f"{len(content.records)} should be; the file was changed."
            )
        content.records.append(record)
        content.ends.append(end)
    elif kind == "end":
        content.finished = True


class HistoryFile:
    """A history in the making; holds the file, and a lock on it, until closed.

    Raises:
        FileWriteError: the file cannot be written, or another run is writing it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: of a line that did not fit on the disk nothing must linger.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            lock(self._file, path)
        except BaseException:
            self._file.close()
            raise

    def cut(self, end: int) -> None:
        """Keep only the first `end` bytes."""
        self._write(lambda: os.ftruncate(self._file.fileno(), end))

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line, at once and whole, or not at all."""
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = memoryview(text.encode() + b"\n")

        def write() -> None:
            end, done = os.fstat(self._file.fileno()).st_size, 0
            try:
                while done < len(line):
                    done += self._file.write(line[done:])
            except OSError:
                os.ftruncate(self._file.fileno(), end)
                raise

        self._write(write)

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        self._write(lambda: os.fsync(self._file.fileno()))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write(self, action: Any) -> None:
        try:
            action()
        except OSError as error:
            raise unwritable(self.path, error) from error

"""The history of a run: one JSON line a round, on disk as it happens.

The format is described in docs/history-format.md. A line is written and flushed in one piece, so
a reader sees whole rounds while the run goes on; a last line cut short by a crash is ignored.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError
from fedhaw.files import FileWriteError

try:
    import fcntl
except ImportError:  # Windows has no such locks; two runs in one folder are not noticed there.
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
FILE_NAME = "history.jsonl"

Record = dict[str, Any]


class HistoryError(FedhawError, ValueError):
    """A file that is not a history, or not the one that is needed."""


@dataclass(frozen=True, eq=False)
class History:
    """What happened, round by round.

    Attributes:
        run: the description of the run, the file's first line.
        records: one mapping a round, as in docs/history-format.md.
        model: (P,) the final global model; None where only the file was read.
        path: the file it is stored in, if any.
        finished: whether the run came to its end.
    """

    run: Record
    records: list[Record]
    model: NDArray[np.float32] | None = None
    path: Path | None = None
    finished: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a history file, or that of a run's folder, also while the run goes on.

        Raises:
            HistoryError: the file is missing, or is not a history.
        """
        file = Path(path)
        if file.is_dir():
            file = file / FILE_NAME
        content = parse(file)
        if content.run is None:
            raise HistoryError(f"{file} holds no complete line yet; try again in a moment.")
        return cls(content.run, content.records, None, file, content.finished)

    @property
    def rounds(self) -> NDArray[np.int64]:
        """(T,) the rounds' numbers, 0 to T - 1."""
        return np.array([record["round"] for record in self.records], dtype=np.int64)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(T,) test accuracy, 0 to 1; NaN in rounds that were not evaluated."""
        return self._numbers("accuracy")

    @property
    def loss(self) -> NDArray[np.float64]:
        """(T,) test loss; NaN in rounds that were not evaluated."""
        return self._numbers("loss")

    @property
    def gamma(self) -> NDArray[np.float64]:
        """(T,) gamma, or (T, L) for a rule with one per layer; NaN where a rule has none."""
        width = max(
            (len(r["gamma"]) for r in self.records if isinstance(r["gamma"], list)), default=0
        )
        if not width:
            return self._numbers("gamma")
        empty = [math.nan] * width
        rows = [r["gamma"] if isinstance(r["gamma"], list) else empty for r in self.records]
        return np.array(rows, dtype=np.float64).reshape(len(rows), width)

    @property
    def weights(self) -> NDArray[np.float64]:
        """(T, K) each client's weight; NaN where it did not take part in the aggregation."""
        table = np.full((len(self.records), len(self.run["clients"])), math.nan)
        for row, record in zip(table, self.records, strict=True):
            for client, weight in record["weights"].items():
                row[int(client)] = weight
        return table

    @property
    def lost(self) -> NDArray[np.int64]:
        """(T,) how many clients of the cohort were lost, for whatever reason."""
        return np.array([len(record["lost"]) for record in self.records], dtype=np.int64)

    def __repr__(self) -> str:
        name, done = self.run.get("name"), len(self.records)
        known = self.accuracy[~np.isnan(self.accuracy)]
        ending = f", accuracy {known[-1]:.4f}" if len(known) else ""
        return f"History({name!r}, {done} rounds{ending})"

    def _numbers(self, name: str) -> NDArray[np.float64]:
        values = [record[name] for record in self.records]
        return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


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


def parse(file: Path) -> Content:
    """Read a history; a last line without its newline does not count.

    Raises:
        HistoryError: the file cannot be read, or is not a history.
    """
    content, end = Content(), 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                end += len(line)
                if line.endswith(b"\n"):
                    _take(content, _decoded(line, number, file), number, end, file)
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
            self._file: IO[bytes] = path.open("ab")
        except OSError as error:
            raise _unwritable(path, error) from error
        self._lock()

    def cut(self, end: int) -> None:
        """Keep only the first `end` bytes."""
        self._write(lambda: os.ftruncate(self._file.fileno(), end))

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line, at once."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

        def write() -> None:
            self._file.write(line.encode() + b"\n")
            self._file.flush()

        self._write(write)

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        self._write(lambda: os.fsync(self._file.fileno()))

    def close(self) -> None:
        """Let go of the file."""
        try:
            self._file.close()
        except OSError:
            # What could not be flushed was reported when it was appended.
            return

    def _write(self, action: Any) -> None:
        try:
            action()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise FileWriteError(
                f"Another run is writing {self.path}; wait for it or choose another folder."
            ) from error
        except OSError:
            # Some network file systems have no locks.
            return


def _unwritable(path: Path, error: OSError) -> FileWriteError:
    reason = error.strerror or str(error)
    return FileWriteError(
        f"Could not write {path}: {reason}; free some space or choose another folder."
    )

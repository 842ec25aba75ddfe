"""The file a history lies in: a line a record, on disk as it happens, or compressed to be kept.

A line is written and flushed in one piece, so a reader sees whole rounds while the run goes on; a
last line without its newline was cut short by a crash and does not count.
"""

import io
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fedhaw.files import is_path, lock, writing
from fedhaw.history.errors import HistoryError
from fedhaw.history.lines import decode, encode, has_checksum
from fedhaw.history.records import EndRecord, Record, RoundRecord, RunRecord

FILE_NAME = "history.jsonl"
"""The name of the history in a run's folder."""

COMPRESSED_NAME = f"{FILE_NAME}.gz"
"""The name of a compressed copy, as `fedhaw report --keep` writes it."""


@dataclass
class Content:
    """What a history file holds.

    Attributes:
        run: its first line; None if not even that is complete. Of a run that was made longer, the
            line that says so.
        records: the rounds.
        ends: for each round, the number of bytes up to the end of its line.
        end: the closing line, if it is there.
        checked: whether every line must have a checksum.
    """

    run: RunRecord | None = None
    records: list[RoundRecord] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    end: EndRecord | None = None
    checked: bool = False

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.end is not None and self.end.status == "finished"


def history_in(path: str | os.PathLike[str]) -> Path:
    """The history that a path means: the file itself, or the one in a run's folder."""
    if not is_path(path):
        raise HistoryError(f"{path!r} is not the path of a history or of a run's folder.")
    place = Path(path)
    if not place.is_dir():
        return place
    plain, compressed = place / FILE_NAME, place / COMPRESSED_NAME
    return compressed if compressed.exists() and not plain.exists() else plain


def find_histories(folders: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Every history under the given folders (or named directly), each once, in a stable order.

    Raises:
        HistoryError: a folder does not exist, or there is no history under any of them.
    """
    given = [Path(folder) for folder in folders]
    found: dict[Path, Path] = {}
    for folder in given:
        if not folder.exists():
            raise HistoryError(f"There is no folder {folder}; give a folder that holds runs.")
        inside = [folder]
        if not folder.is_file():
            inside = sorted([*folder.rglob(FILE_NAME), *folder.rglob(COMPRESSED_NAME)])
        for path in inside:
            found.setdefault(path.resolve(), path)
    if not found:
        where = ", ".join(map(str, given)) or "no folder at all"
        raise HistoryError(
            f"No {FILE_NAME} was found under {where}; give a folder that holds finished or "
            "running runs."
        )
    return tuple(found.values())


def parse(path: Path, *, as_far_as_possible: bool = False) -> Content:
    """What a file holds, plain or compressed.

    Args:
        path: the history.
        as_far_as_possible: stop at the first line that cannot be, once the first one is there: a
            power cut may leave zeros or garbage behind what was safely on the disk.

    Raises:
        HistoryError: the file cannot be read, or is not a history.
    """
    content, end = Content(), 0
    try:
        with opened(path) as lines:
            for number, line in enumerate(lines, start=1):
                end += len(line)
                if not line.endswith(b"\n") or not line.strip():
                    continue
                try:
                    take(content, line, f"Line {number} of {path}", end)
                except HistoryError:
                    if content.run is None or not as_far_as_possible:
                        raise
                    content.end = None  # what follows must go
                    break
    except zlib.error as error:
        raise HistoryError(f"{path} is damaged ({error}); restore the file.") from error
    except OSError as error:
        raise HistoryError(
            f"{path} cannot be read: {error.strerror or error}; check the file."
        ) from error
    return content


def has_ended(path: Path, rounds: int) -> bool:
    """Whether a file holds a run of so many rounds that came to its end."""
    try:
        content = parse(path, as_far_as_possible=True)
    except HistoryError:  # no history at all
        return False
    return content.finished and len(content.records) == rounds


def opened(path: Path) -> IO[bytes]:
    """The lines of a history, plain or compressed; of a pipe, whose end might never come, none."""
    if path.is_fifo():
        raise OSError("it is a pipe")
    return io.BytesIO(_decompressed(path.read_bytes())) if path.suffix == ".gz" else path.open("rb")


def _decompressed(compressed: bytes) -> bytes:
    """What gzip's members hold; of a last one that was cut short, as much as there is."""
    content = b""
    while compressed:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)  # 16: with gzip's head and checksum
        content += member.decompress(compressed)
        compressed = member.unused_data.lstrip(b"\0")
    return content


def take(content: Content, line: bytes, where: str, end: int) -> None:
    """One line more of a file's content.

    Args:
        content: the lines before it, to which it is added.
        line: as it stands in the file.
        where: what a sentence calls it.
        end: the number of bytes up to its end.
    """
    record = decode(line, where, must_check=content.checked)
    if content.run is None:
        if not isinstance(record, RunRecord):
            raise HistoryError(
                f'{where} is not of kind "run", with which a history begins; is it one?'
            )
        content.run, content.checked = record, has_checksum(line)
    elif isinstance(record, RunRecord):
        content.run = record
    elif isinstance(record, RoundRecord):
        if record.round != len(content.records):
            raise HistoryError(
                f"{where} is round {record.round} where round {len(content.records)} should be; "
                "the file was changed: restore it, or remove it."
            )
        content.records.append(record)
        content.ends.append(end)
        content.end = None
    elif isinstance(record, EndRecord):
        content.end = record


class HistoryFile:
    """A history in the making; holds the file, and a lock on it, until closed.

    Raises:
        FileWriteError: the file cannot be written, or another run is writing it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: of a line that did not fit on the disk nothing must linger.
            self._file = path.open("ab", buffering=0)
        try:
            lock(self._file, path)
        except BaseException:
            self._file.close()
            raise

    def cut(self, end: int) -> None:
        """The first `end` bytes stay, and the rest goes."""
        with writing(self.path):
            os.ftruncate(self._file.fileno(), end)

    def append(self, record: Record) -> None:
        """One line more, at once and whole, or not at all."""
        line = memoryview(encode(record))
        with writing(self.path):
            end, done = os.fstat(self._file.fileno()).st_size, 0
            try:
                while done < len(line):
                    done += self._file.write(line[done:])
            except OSError:
                os.ftruncate(self._file.fileno(), end)
                raise

    def lengthen(self, before: RunRecord, now: RunRecord) -> RunRecord:
        """What the run is from now on: a line more where it is to have other rounds than it said.

        Args:
            before: what the history says of the run.
            now: what is asked for.
        """
        if now.rounds in (None, before.rounds):
            return before
        after = replace(before, config={**before.config, "rounds": now.rounds})
        self.append(after)
        return after

    def sync(self) -> None:
        """A wait until everything is on the disk."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """The end of writing; file and lock are let go."""
        self._file.close()

"""Watching runs that go on in other processes, by the histories they write.

A history is flushed line by line, so whoever sees the file sees the run; no other channel is
needed, on this machine or on any other that shares the storage.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from fedhaw.experiments.job import Event, Job, Watch
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.history import HistoryError, RoundRecord, decode

SECONDS_BETWEEN_LOOKS = 0.2


class Following:
    """A thread that tells a watch what happens to runs, within its `with` block.

    Args:
        watch: is told; never by two threads at once.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._tails: dict[Path, tuple[Job, Tail]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._look_again_and_again, daemon=True)

    def started(self, job: Job) -> None:
        """A run that is to be followed from now on; one that is followed already goes on."""
        with self._lock:
            if job.folder not in self._tails:
                self._tails[job.folder] = job, Tail(RecipeFolder(job.folder).history)
                self._tell(Event("started", job))

    def finished(self, job: Job) -> None:
        """A run that has come to its end.

        Raises:
            BaseException: whatever the watch raised in the meantime.
        """
        with self._lock:
            self._look(*self._tails.pop(job.folder))
            self._tell(Event("finished", job))
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look_again_and_again(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            with self._lock:
                for job, tail in self._tails.values():
                    self._look(job, tail)

    def _look(self, job: Job, tail: "Tail") -> None:
        for record in tail.news():
            self._tell(Event("round", job, record))

    def _tell(self, event: Event) -> None:
        if self._error is None:
            try:
                self._watch(event)
            except BaseException as error:  # another thread's business: it is raised there
                self._error = error


class Tail:
    """The rounds of a history as they are written, each once.

    Args:
        path: the history; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._next_round = 0

    def news(self) -> Iterator[RoundRecord]:
        """The rounds that have been written since the last call."""
        with suppress(FileNotFoundError, HistoryError):
            try:
                yield from self._read()
            except HistoryError:
                # A run that goes on cuts its history back to the checkpoint and writes the rounds
                # after it again: the place is in the middle of a line. Begin again, and pass over
                # what was seen.
                self._place = 0
                yield from self._read()

    def _read(self) -> Iterator[RoundRecord]:
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._place:
                self._place = 0
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                record = decode(line, str(self._path))
                self._place += len(line)
                if isinstance(record, RoundRecord) and record.round == self._next_round:
                    self._next_round += 1
                    yield record

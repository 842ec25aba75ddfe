"""Watching runs that go on in other processes, by the histories they write.

A history is flushed line by line, so whoever sees the file sees the run; no other channel is
needed, on this machine or on any other that shares the storage.
"""

import threading
from pathlib import Path
from typing import Self

from fedhaw.experiments.job import Event, Job, Watch
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.history import HistoryFollower

SECONDS_BETWEEN_LOOKS = 0.2


class Following:
    """A thread that tells a watch what happens to runs, within its `with` block.

    Args:
        watch: is told; never by two threads at once.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._runs: dict[Path, tuple[Job, HistoryFollower]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._look_again_and_again, daemon=True)

    def started(self, job: Job) -> None:
        """A run that is to be followed from now on; one that is followed already goes on."""
        with self._lock:
            if job.folder not in self._runs:
                self._runs[job.folder] = job, HistoryFollower(RecipeFolder(job.folder).history)
                self._tell(Event("started", job))

    def finished(self, job: Job) -> None:
        """A run that has come to its end.

        Raises:
            BaseException: whatever the watch raised in the meantime.
        """
        with self._lock:
            self._look(*self._runs.pop(job.folder))
            self._tell(Event("finished", job))
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look_again_and_again(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            with self._lock:
                for job, history in self._runs.values():
                    self._look(job, history)

    def _look(self, job: Job, history: HistoryFollower) -> None:
        for record in history.news():
            self._tell(Event("round", job, record))

    def _tell(self, event: Event) -> None:
        if self._error is None:
            try:
                self._watch(event)
            except BaseException as error:  # another thread's business: it is raised there
                self._error = error

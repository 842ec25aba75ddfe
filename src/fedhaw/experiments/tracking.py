"""The rounds of a sweep as TensorBoard event files, while it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedhaw.experiments.job import Event, Job, Watch
from fedhaw.history import History
from fedhaw.reports import TensorBoardLog


@contextmanager
def also_to_tensorboard(folder: Path, watch: Watch) -> Iterator[Watch]:
    """A watch that writes TensorBoard event files, too: `<folder>/<label>/seed-<seed>`.

    Each run's folder holds all of its rounds, each once: those from before an interruption are
    taken from the history, and files from then are removed.
    """
    logs: dict[Path, TensorBoardLog] = {}
    written: dict[Path, int] = {}

    def open_(job: Job) -> None:
        place = folder / job.label / f"seed-{job.recipe.settings['seed']}"
        written[job.folder] = 0
        logs[job.folder] = TensorBoardLog(place, afresh=True)

    def catch_up(job: Job, to: int | None = None) -> None:
        done = written[job.folder]
        if to is None or to > done:
            run = History.read(job.folder)
            written[job.folder] = len(run.records) if to is None else to
            logs[job.folder].write(run, done, to)

    def both(event: Event) -> None:
        job, record = event.job, event.record
        if event.kind == "started" or event.kind == "skipped":
            open_(job)
        if record is not None:
            catch_up(job, record.round)
            logs[job.folder].on_round(record)
            written[job.folder] = record.round + 1
        if event.kind == "finished" or event.kind == "skipped":
            catch_up(job)
            logs.pop(job.folder).close()
        watch(event)

    try:
        yield both
    finally:
        for log in logs.values():
            log.close()

"""Live progress of a sweep on standard error: a table on a terminal, plain lines elsewhere."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedhaw.cli.exits import interruptible
from fedhaw.cli.output import to_stderr
from fedhaw.history import numbers_of
from fedhaw.reports.metrics import duration

if TYPE_CHECKING:
    from fedhaw.experiments.job import Event, Job, Watch
    from fedhaw.history import Learnt

MOST_ROWS = 12
"""A longer table would not fit a terminal; the labels that moved last are shown."""

SECONDS_BETWEEN_LINES = 5.0
"""Where progress is plain lines, a run speaks at most so often."""


@dataclass
class _Row:
    """What is known of the runs under one label."""

    runs: int = 0
    rounds: int = 0
    runs_done: int = 0
    rounds_done: int = 0
    accuracy: float | None = None
    learnt: str = ""
    seconds: float = 0.0
    rounds_timed: int = 0
    moved: float = field(default_factory=time.monotonic)


class SweepProgress:
    """A display of how far a sweep is; give it to `run_sweep` as `watch`, within its `with` block.

    Args:
        jobs: every run of the sweep, also those that will be passed over.
        console: where to show it.
    """

    def __init__(self, jobs: Sequence["Job"], console: Console) -> None:
        self._console = console
        self._rows: defaultdict[str, _Row] = defaultdict(_Row)
        for job in jobs:
            row = self._rows[job.label]
            row.runs += 1
            row.rounds += job.recipe.settings["rounds"]
        self._live = (
            Live(self._shown(), console=console, refresh_per_second=4, transient=True)
            if console.is_terminal
            else None
        )
        self._spoke = 0.0
        self._skipped = 0
        self._rounds_of: dict[Path, int] = {}  # by folder, how far the runs under way are

    def __enter__(self) -> "SweepProgress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: "Event") -> None:
        """An event, noted and shown."""
        job, row = event.job, self._rows[event.job.label]
        row.moved = time.monotonic()
        match event.kind:
            case "skipped":
                row.runs_done += 1
                row.rounds_done += job.recipe.settings["rounds"]
                self._skipped += 1
            case "started":
                self._rounds_of[job.folder] = 0
                self._say_skipped()
            case "round":
                self._take_round(event, row)
            case "finished":
                # Rounds done before an interruption were not seen here; now they all are.
                rounds = job.recipe.settings["rounds"]
                row.rounds_done += rounds - self._rounds_of.pop(job.folder, 0)
                row.runs_done += 1
                self._line(job, row, rounds, at_once=True)
        if self._live is not None:
            self._live.update(self._shown())

    def _take_round(self, event: "Event", row: _Row) -> None:
        record = event.record
        if record is None:
            return
        now = record.round + 1
        row.rounds_done += now - self._rounds_of.get(event.job.folder, 0)
        self._rounds_of[event.job.folder] = now
        row.seconds += sum(record.seconds.values())
        row.rounds_timed += 1
        row.accuracy = record.evaluation.get("accuracy", row.accuracy)
        row.learnt = ", ".join(f"{name} {_short(v)}" for name, v in record.metrics.items())
        if now < event.job.recipe.settings["rounds"]:
            self._line(event.job, row, now)

    def _seconds_left(self) -> float | None:
        """From each label's own pace; one not seen yet is taken for the average.

        As many runs as are under way now will be so to the end.
        """
        timed = [row for row in self._rows.values() if row.rounds_timed]
        if not timed:
            return None
        average = sum(row.seconds for row in timed) / sum(row.rounds_timed for row in timed)
        one_by_one = sum(
            (row.rounds - row.rounds_done)
            * (row.seconds / row.rounds_timed if row.rounds_timed else average)
            for row in self._rows.values()
        )
        return one_by_one / max(len(self._rounds_of), 1)

    def _say_skipped(self) -> None:
        if self._skipped and self._live is None:
            self._console.print(f"{self._skipped} runs had finished before.", highlight=False)
        self._skipped = 0

    def _line(self, job: "Job", row: _Row, done: int, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._live is not None or (not at_once and now - self._spoke < SECONDS_BETWEEN_LINES):
            return
        self._spoke = now
        accuracy = "" if row.accuracy is None else f", accuracy {row.accuracy:.2%}"
        learnt = f", {row.learnt}" if row.learnt else ""
        seed, rounds = job.recipe.settings["seed"], job.recipe.settings["rounds"]
        self._console.print(
            f"{job.label}, seed {seed}: round {done} of {rounds}{accuracy}{learnt}{self._left()}",
            highlight=False,
            markup=False,
        )

    def _left(self) -> str:
        seconds = self._seconds_left()
        return "" if seconds is None else f", about {duration(seconds)} left"

    def _shown(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("", "runs", "rounds", "", "accuracy", "learnt"):
            table.add_column(heading, justify="left" if not heading else "right")
        last = sorted(self._rows, key=lambda label: -self._rows[label].moved)[:MOST_ROWS]
        for label in (label for label in self._rows if label in last):
            row = self._rows[label]
            table.add_row(
                Text(label),
                f"{row.runs_done}/{row.runs}",
                f"{row.rounds_done}/{row.rounds}",
                ProgressBar(row.rounds, row.rounds_done, width=24),
                "" if row.accuracy is None else f"{row.accuracy:.2%}",
                Text(row.learnt, overflow="ellipsis", no_wrap=True),
            )
        done = sum(row.rounds_done for row in self._rows.values())
        rounds = sum(row.rounds for row in self._rows.values())
        return Group(table, Text(f"{done} of {rounds} rounds{self._left()}", style="dim"))


@contextmanager
def watching(jobs: Sequence["Job"], out: Path, tensorboard: bool = False) -> "Iterator[Watch]":
    """A block in which a sweep is run: what is given to `run_sweep` shows how far it is.

    Args:
        jobs: every run of the sweep.
        out: where its results are, for whoever interrupts it.
        tensorboard: whether to write event files there, too.
    """
    from fedhaw.experiments.tracking import also_to_tensorboard

    with interruptible(out), SweepProgress(jobs, to_stderr()) as progress:
        if tensorboard:
            with also_to_tensorboard(out / "tensorboard", progress) as both:
                yield both
        else:
            yield progress


def _short(value: "Learnt") -> str:
    """A number in few characters; of several, the least and the largest."""
    if isinstance(value, float):
        return f"{value:.4g}"
    known = [number for number in numbers_of(value).values() if number is not None]
    return f"{min(known):.4g} to {max(known):.4g}" if known else "unknown"

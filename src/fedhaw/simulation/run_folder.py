"""A run's folder: its history and its checkpoints, kept in step.

A checkpoint is written only after the history it belongs to is on the disk. A run that finds its
own checkpoint cuts the history back to it and goes on from there, so that in the end both are what
they would have been without the interruption.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from fedhaw.checkpoints import CheckpointError, CheckpointStore, Part, Parts
from fedhaw.description import differences
from fedhaw.files import writing
from fedhaw.history import (
    FILE_NAME,
    Content,
    EndRecord,
    HistoryError,
    HistoryFile,
    RoundRecord,
    RunRecord,
    parse,
)
from fedhaw.settings import of_today
from fedhaw.simulation.client_memory import FILE_NAME as CLIENT_MEMORIES
from fedhaw.simulation.errors import AFRESH

KEPT = 2
"""How many checkpoints there are: the last one, and another should it be damaged."""

logger = logging.getLogger(__name__)


class RunFolder:
    """The folder of one run, open for writing.

    Args:
        folder: made if missing.
        run: the history's first line; its "config" decides whether the folder is this run's own.
        resume: whether to go on from what is there; if not, an earlier run's files are removed.

    Attributes:
        run: the history's first line: the earlier one's when a run goes on.
        records: the rounds that are kept.
        checkpoint: the parts to go on from; None to begin at round 0.
        finished: whether the run had come to its end.
        memories: the file for what clients remember, if they do.

    Raises:
        FileWriteError: the folder cannot be written, or another run is using it.
        CheckpointError: the folder belongs to another configuration, or no checkpoint is whole.
        HistoryError: the history does not reach as far as the checkpoint, or is not a history.
    """

    def __init__(self, folder: Path, run: RunRecord, *, resume: bool = True) -> None:
        self.path = folder / FILE_NAME
        self._checkpoints = CheckpointStore(
            folder / "checkpoints",
            "round",
            keep=KEPT,
            afresh=AFRESH,
        )
        self.memories = self._checkpoints.folder / CLIENT_MEMORIES
        self._asked = run
        self.records: list[RoundRecord] = []
        self.checkpoint: dict[str, Part] | None = None
        self._history = HistoryFile(self.path)
        try:
            if resume:
                self._go_on(run)
            else:
                self._begin(run)
        except BaseException:
            self.close()
            raise

    def append(self, record: RoundRecord | EndRecord) -> None:
        """One round more in the history, or the closing line."""
        self._history.append(record)

    def save(self, checkpoint: Parts) -> None:
        """A new checkpoint on the disk, written once the history is safe."""
        self._history.sync()
        self._checkpoints.save(checkpoint["run"].facts["round"], checkpoint)

    def close(self) -> None:
        """The release of the folder."""
        self._history.close()

    def _begin(self, run: RunRecord) -> None:
        self._checkpoints.remove()
        self._checkpoints.remove_leftovers()
        with writing(self.memories):
            self.memories.unlink(missing_ok=True)
        self._history.cut(0)
        self._history.append(run)
        self.run, self.finished = run, False

    def _go_on(self, run: RunRecord) -> None:
        content = parse(self.path, as_far_as_possible=True)
        if content.run is not None and content.records:  # without rounds there is nothing to lose
            self._refuse_another(content.run.config, self.path)
        checkpoint = self._checkpoints.latest()
        if checkpoint is None:
            self._begin(run)
            return
        self._refuse_another(checkpoint["run"].facts["config"], self._checkpoints.folder)
        self._take_up(content, checkpoint)

    def _take_up(self, content: Content, checkpoint: dict[str, Part]) -> None:
        done = checkpoint["run"].facts["round"] + 1
        if content.run is None or len(content.records) < done:
            raise HistoryError(
                f"{self.path} holds {len(content.records)} rounds, but the checkpoint in "
                f"{self._checkpoints.folder} was made after {done}; put the history back, or "
                f"{AFRESH}."
            )
        self._checkpoints.remove_leftovers()
        self.run, self.records, self.checkpoint = content.run, content.records[:done], checkpoint
        rounds = self._asked.rounds or done
        self.finished = content.finished and len(content.records) == done == rounds
        if not self.finished and done <= rounds:
            self._history.cut(content.ends[done - 1])
            self.run = self._history.lengthen(content.run, self._asked)
        logger.info("Going on after round %d of %s.", done - 1, self.path)

    def _refuse_another(self, config: Mapping[str, object], where: Path) -> None:
        differing = differences(of_today(config), self._asked.config)
        if differing:
            raise CheckpointError(
                f"{where} belongs to another configuration ({'; '.join(differing)}: there vs "
                f"here); {AFRESH}."
            )

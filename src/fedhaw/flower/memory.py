"""What outlives the server: a checkpoint to go on from, and the history of the run."""

import logging

from flwr.app import ArrayRecord

from fedhaw.flower.aggregator import Aggregator
from fedhaw.flower.checkpoints import load, save
from fedhaw.flower.history import RoundReport, RunHistory, first_line
from fedhaw.flower.roster import Roster
from fedhaw.flower.settings import Settings

log = logging.getLogger("flwr.fedhaw")


class Memory:
    """Keeps a run's rounds, as far as the settings ask for it.

    A round is written into the history before the checkpoint, so a server killed between the two
    finds a history that is ahead; the rounds too many are then cut off, for they come again.

    Attributes:
        cohort: how many nodes answered in the round of the checkpoint that was restored.
    """

    def __init__(self, settings: Settings, aggregator: Aggregator, roster: Roster) -> None:
        self._settings, self._aggregator, self._roster = settings, aggregator, roster
        self._history: RunHistory | None = None
        self.cohort = 0

    def restore(self, initial_arrays: ArrayRecord) -> tuple[int, ArrayRecord]:
        """The rounds that are done already, and the model to go on with.

        Raises:
            CheckpointError: the checkpoint is damaged, or of another federation.
        """
        aggregator, path = self._aggregator, self._settings.checkpoint
        aggregator.adopt(initial_arrays)
        done = 0
        checkpoint = None if path is None else load(path)
        if checkpoint is not None:
            changed = aggregator.restore(checkpoint)
            if changed is not None:
                log.warning("The rule is not what it was in %s: %s", path, changed)
            self._roster.examples.update(checkpoint.examples)
            self._roster.clients.update(checkpoint.nodes)
            self.cohort = checkpoint.cohort
            done = checkpoint.server_round
            log.info("Going on after round %d, found in %s", done, path)
        if self._settings.history is not None:
            line = first_line(
                aggregator.rule,
                aggregator.layout.size,
                self._settings.seed,
                **self._settings.description,
            )
            self._history = RunHistory(self._settings.history, line, done)
        assert aggregator.record is not None
        return done, aggregator.record

    def keep(self, report: RoundReport, cohort: int, last: bool) -> None:
        """A round is over."""
        if self._history is not None:
            self._history.append(report, self._roster.examples)
        due = last or report.server_round % self._settings.checkpoint_every == 0
        if self._settings.checkpoint is not None and due:
            save(
                self._aggregator.checkpoint(report.server_round, self._roster, cohort),
                self._settings.checkpoint,
            )

    def end(self, seconds: float) -> None:
        """The run is over."""
        if self._history is not None:
            self._history.end(seconds)

    def close(self) -> None:
        """Let go of the history, however the run ended."""
        if self._history is not None:
            self._history.close()

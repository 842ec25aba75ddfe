"""What outlives the server: checkpoints to go on from, and the history of the run."""

import logging
import os
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from flwr.app import ArrayRecord

from fedhaw.checkpoints import CheckpointError, CheckpointStore, Part, read
from fedhaw.description import describe, differences
from fedhaw.files import FileWriteError, locked
from fedhaw.flower.aggregator import Aggregator
from fedhaw.flower.history import RunHistory, rounds_kept, run_record
from fedhaw.flower.roster import Roster
from fedhaw.flower.settings import StrategySettings
from fedhaw.history import RoundRecord
from fedhaw.rules import pack_state
from fedhaw.rules.private import Private

AFRESH = "start afresh with resume_from=0"

log = logging.getLogger("flwr.fedhaw")


class RunRecorder:
    """The keeper of a run's rounds on disk, as far as the settings ask for it.

    A round is written into the history before the checkpoint, so a server killed between the two
    finds a history that is ahead; the rounds too many are then cut off, for they come again. A disk
    that is full does not end the run: what could not be written is tried again a round later. But
    where models are private and checkpoints are kept it does, except after the last round: no more
    rounds may go out than the last checkpoint foresees.

    Attributes:
        cohort: how many nodes answered in the round of the checkpoint that was restored.
        seconds_before: how long the rounds took that the history had then.
    """

    def __init__(self, settings: StrategySettings, aggregator: Aggregator, roster: Roster) -> None:
        self._settings, self._aggregator, self._roster = settings, aggregator, roster
        self._path = None if settings.checkpoint is None else Path(settings.checkpoint)
        self._store: CheckpointStore | None = None
        self._history: RunHistory | None = None
        self._unwritten: list[RoundRecord] = []
        self._overdue = False
        self._open = ExitStack()
        self.cohort = 0
        self.seconds_before, self._begin = 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the run has taken in all, the times between its servers left out."""
        return self.seconds_before + time.perf_counter() - self._begin

    def restore(self, initial_arrays: ArrayRecord, num_rounds: int) -> tuple[int, ArrayRecord]:
        """The rounds that are done already, and the model to go on with.

        Args:
            initial_arrays: the model to begin with.
            num_rounds: how many rounds the run is to have in all.

        Raises:
            CheckpointError: the checkpoints are damaged, or of another federation.
            FileWriteError: the files cannot be written, or another run is using them.
            HistoryError: the history is none, or does not go as far as the checkpoint.
        """
        aggregator, settings, done = self._aggregator, self._settings, 0
        aggregator.adopt(initial_arrays)
        if self._path is not None:
            pack_state(aggregator.rule.init())  # what cannot be stored is noticed at once
            self._open.enter_context(locked(self._path.with_name(f".{self._path.stem}.lock")))
            self._store = CheckpointStore(
                self._path.parent, self._path.stem, keep=settings.checkpoints_kept, afresh=AFRESH
            )
            self._store.remove_leftovers()
            done = self._go_back(self._path, self._store)
        if settings.history is not None:
            run = run_record(
                aggregator.rule,
                aggregator.layout.size,
                settings.seed,
                **(settings.description or {}),
            )
            run = replace(run, config={**run.config, "rounds": num_rounds})
            self._history = RunHistory(settings.history, run, done)
            self.seconds_before = self._history.seconds_before
            self._open.callback(self._history.close)
        if isinstance(aggregator.rule, Private) and done < num_rounds:
            # From here on models go out: what they cost must be on the disk before.
            self._save(done, self.cohort)
        assert aggregator.record is not None
        return done, aggregator.record

    def keep(self, record: RoundRecord, cohort: int, last: bool) -> None:
        """A round is over."""
        server_round = record.round + 1
        due = last or self._overdue or server_round % self._settings.checkpoint_every == 0
        if self._history is not None:
            self._unwritten.append(record)
        try:
            self._write_history()
            if due:
                self._save(server_round, cohort, last)
            self._overdue = False
        except FileWriteError as error:
            private = isinstance(self._aggregator.rule, Private)
            if private and not last and self._store is not None:
                raise
            self._overdue = due
            then = "Its last rounds are lost." if last else "The run tries again a round later."
            log.warning("%s %s", error, then)

    def end(self) -> None:
        """The run is over."""
        if self._history is None:
            return
        try:
            self._write_history()
            self._history.end(self.seconds)
        except FileWriteError as error:
            log.warning("%s The end of the history is missing.", error)

    def close(self) -> None:
        """The release of the files, however the run ended."""
        self._open.close()

    def _go_back(self, path: Path, store: CheckpointStore) -> int:
        """The round of the checkpoint that the settings ask for, which is restored; 0 for none."""
        wanted = self._settings.resume_from
        if wanted == 0:
            parts = None
        elif wanted is not None:
            parts = store.at(wanted)
        else:
            # Alone under the plain name: written by the first version, or put there by the user.
            parts = store.latest() or (read(path) if path.exists() else None)
        done = 0 if parts is None else self._restore(parts, path)
        if self._settings.history is not None:
            rounds_kept(Path(self._settings.history), done)  # it is looked at before files go
        rule = self._aggregator.rule
        if parts is not None and isinstance(rule, Private):
            newest = parts if wanted is None else store.latest() or parts
            repeated = self._sent(newest, store) - done
            self._aggregator.state = rule.going_on(self._aggregator.state, repeated)
            if wanted is not None:
                # With the later checkpoints goes the last that is known of their rounds.
                self._save(done, self.cohort, last=True)
        if wanted is not None:
            # They would be taken for later rounds of the run that begins now.
            store.remove(after=-1 if parts is None else wanted)
            path.unlink(missing_ok=True)
            _point(path, store.file(wanted))
        return done

    def _sent(self, newest: dict[str, Part], store: CheckpointStore) -> int:
        """How many rounds may have gone out, those that came again counted each time.

        Args:
            newest: the last checkpoint that is whole; it knows what was foreseen when it was made.
            store: may hold later ones that are damaged.
        """
        run = newest["run"].facts
        foreseen = run.get("sent", run["round"] + self._settings.checkpoint_every)
        return int(foreseen) + max(store.newest - int(run["round"]), 0)

    def _restore(self, parts: dict[str, Part], path: Path) -> int:
        if not {"run", "model", "rest", "state", "guard", "roster"} <= parts.keys():
            raise CheckpointError(f"{path} is not a checkpoint of a Flower federation; {AFRESH}.")
        self._aggregator.restore(parts)
        run, roster = parts["run"].facts, parts["roster"].facts
        done = int(run["round"])
        rule = {"rule": describe(self._aggregator.rule)}
        privacy = [r["rule"].get("privacy") for r in (run, rule)]
        other = "; ".join(differences(*({"privacy": one} for one in privacy)))
        if other and isinstance(self._aggregator.rule, Private):
            # One noise multiplier stands for all rounds in epsilon, those of before included.
            raise CheckpointError(
                f"{path} belongs to a run with another privacy ({other}: there vs here), and it "
                "cannot change within a run; go on with that one, or choose another file for a new "
                "run."
            )
        changed = "; ".join(differences({"rule": run["rule"]}, rule))
        if changed and self._settings.resume_from is None:
            raise CheckpointError(
                f"{path} belongs to another rule ({changed}: there vs here); go on with this one "
                f"by resume_from={done}, choose another file, or {AFRESH}."
            )
        if changed:
            log.warning("The rule is not what it was in %s: %s", path, changed)
        self._roster.examples.update(roster["examples"])
        self._roster.clients.update({int(node): name for node, name in roster["nodes"].items()})
        self._roster.heard.update(roster.get("heard", {}))
        self._roster.doubted.update(roster.get("doubted", {}))
        self.cohort = roster["cohort"]
        log.info("Going on after round %d, found in %s", done, path)
        return done

    def _write_history(self) -> None:
        while self._history is not None and self._unwritten:
            self._history.append(self._unwritten[0], self._roster.examples)
            self._unwritten.pop(0)
        if self._history is not None:
            self._history.sync()

    def _save(self, server_round: int, cohort: int, last: bool = False) -> None:
        """A checkpoint; after the `last` one nobody is asked."""
        if self._store is None or self._path is None:
            return
        rule = self._aggregator.rule
        run = {"round": server_round, "rule": describe(rule)}
        if isinstance(rule, Private):
            before_the_next = 0 if last else self._settings.checkpoint_every
            run["sent"] = server_round + self._aggregator.state.repeated + before_the_next
        roster = {
            "examples": self._roster.examples,
            "nodes": self._roster.clients,
            "heard": self._roster.heard,
            "doubted": self._roster.doubted,
            "cohort": cohort,
        }
        parts = {"run": Part({}, run), **self._aggregator.parts(), "roster": Part({}, roster)}
        _point(self._path, self._store.save(server_round, parts))


def _point(name: Path, file: Path) -> None:
    """A link from `name` to `file`, so that the last checkpoint is always found under one name."""
    other = name.with_name(f".{name.name}.link")
    with suppress(OSError):
        other.unlink(missing_ok=True)
        try:
            os.link(file, other)
        except OSError:  # a file system without links
            shutil.copyfile(file, other)
        other.replace(name)

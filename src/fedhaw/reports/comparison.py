"""Runs grouped by rule, over seeds: every number that tables, figures and the page show.

A spread is the sample standard deviation over seeds (n - 1 in the denominator), and is not a
number for a single seed. Rounds are counted from 1: "after 12 rounds" is the record of round 11.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedhaw.history import History, HistoryError, Vector
from fedhaw.reports.labels import labelled, sort_key
from fedhaw.reports.metrics import (
    ACCURACY,
    CLIENT_LOSS,
    COSTS,
    LOST,
    SERVER,
    TRAIN,
    Metric,
    learnt,
    measured,
)


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, the sample standard deviation, and how many seeds there are."""

    mean: float
    std: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float] | Vector) -> "Spread":
        """Of one finite value a seed; seeds without one are left out."""
        finite = np.asarray(values, dtype=np.float64)
        finite = finite[np.isfinite(finite)]
        if not finite.size:
            return cls(math.nan, math.nan, 0)
        std = float(finite.std(ddof=1)) if finite.size > 1 else math.nan
        return cls(float(finite.mean()), std, finite.size)


@dataclass(frozen=True)
class Reach:
    """When a target accuracy was first reached; the spreads are over the seeds that did."""

    rounds: Spread
    seconds: Spread
    reached: int
    seeds: int


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one rule (with one choice of settings), S seeds over the same T rounds.

    Attributes:
        label: its name for people, unique within a comparison.
        rule: the rule's lower-case name.
        runs: one run a seed, by rising seed, cut to the rounds they all have.
    """

    label: str
    rule: str
    runs: tuple[History, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, rising."""
        return tuple(run.seed for run in self.runs)

    @cached_property
    def rounds(self) -> Vector:
        """(T,) the rounds done, counted from 1."""
        return self.runs[0].rounds.astype(np.float64) + 1

    @cached_property
    def _values(self) -> dict[str, Vector]:
        return {}

    def values(self, metric: Metric) -> Vector:
        """(S, T) the metric of every seed in every round, read once."""
        if metric.key not in self._values:
            self._values[metric.key] = np.stack([metric.read(run) for run in self.runs])
        return self._values[metric.key]

    def has(self, metric: Metric) -> bool:
        """Whether any seed has a value of the metric in any round."""
        return bool(np.isfinite(self.values(metric)).any())

    def per_round(self, metric: Metric) -> tuple[Vector, Vector]:
        """(T,) the mean over seeds and (T,) the spread, NaN where there are no two seeds."""
        values = self.values(metric)
        known = np.isfinite(values)
        seeds = known.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            mean = np.where(known, values, 0.0).sum(axis=0) / seeds
            squares = np.where(known, values - mean, 0.0) ** 2
            spread = np.sqrt(squares.sum(axis=0) / (seeds - 1))
        return mean, np.where(seeds > 1, spread, np.nan)

    def final(self, metric: Metric = ACCURACY) -> Spread:
        """Over seeds, of the last value that was measured."""
        return self._over_seeds(metric, lambda known: known[-1])

    def best(self, metric: Metric = ACCURACY) -> Spread:
        """Over seeds, of the best value of each run."""
        return self._over_seeds(metric, np.min if metric.better == "lower" else np.max)

    def mean(self, metric: Metric = ACCURACY) -> Spread:
        """Over seeds, of each run's mean over its rounds."""
        return self._over_seeds(metric, np.mean)

    def total(self, metric: Metric) -> Spread:
        """Over seeds, of each run's sum over its rounds; nothing where nothing was recorded."""
        return self._over_seeds(metric, np.sum)

    def _over_seeds(self, metric: Metric, of_run: Callable[[Vector], float]) -> Spread:
        """Over seeds, of a number made of all that was measured in a run."""
        known = [row[np.isfinite(row)] for row in self.values(metric)]
        return Spread.of([of_run(row) for row in known if row.size])

    def reach(self, target: float) -> Reach:
        """When each seed first reached the target; seconds are of training and aggregation."""
        rounds, seconds = [], []
        for run in self.runs:
            hits = np.flatnonzero(ACCURACY.read(run) >= target)
            if hits.size:
                spent = TRAIN.read(run) + SERVER.read(run)
                rounds.append(float(hits[0] + 1))
                seconds.append(float(spent[: hits[0] + 1].sum()))
        return Reach(Spread.of(rounds), Spread.of(seconds), len(rounds), len(self.runs))

    def mean_by_client(self, name: str | None = None) -> tuple[Vector, History, str]:
        """(T, K) a number a client: the mean over seeds, or the first seed's if splits differ.

        Also the run whose clients these are, and what to add to a title.

        Args:
            name: of what the rule learnt of each client; None for the client's weight.
        """
        first, nothing = self.runs[0], np.full((len(self.rounds), 0), np.nan)
        each = [run.weights if name is None else run.client_metrics.get(name) for run in self.runs]
        if not _same_split(self.runs):
            return nothing if each[0] is None else each[0], first, f" (seed {first.seed})"
        there = [values for values in each if values is not None]
        if not there:
            return nothing, first, ""
        stacked = np.stack(there)
        present = np.isfinite(stacked).sum(axis=0)
        total = np.nansum(stacked, axis=0)
        mean = np.divide(total, present, out=np.full(total.shape, np.nan), where=present > 0)
        return mean, first, ""

    @property
    def said(self) -> tuple[str, ...]:
        """What the server had to say of its rounds, a sentence each, seed by seed."""
        sentences = []
        for run in self.runs:
            notes: dict[str, list[int]] = {}
            for record in run.records:
                if record.note:
                    notes.setdefault(record.note, []).append(record.round + 1)
            for note, rounds in notes.items():
                when = f"round {rounds[0]}"
                if len(rounds) > 1:
                    when = f"{len(rounds)} rounds, the first of them {rounds[0]}"
                sentences.append(f"{self.label}, seed {run.seed}, {when}: {note}.")
        return tuple(sentences)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several rules side by side.

    Attributes:
        groups: one a rule, in the order the letter lists them.
        remarks: one sentence each on runs that were left out or cut short.
    """

    groups: tuple[Group, ...]
    remarks: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[History, ...]:
        """All runs that count."""
        return tuple(run for group in self.groups for run in group.runs)

    @cached_property
    def measured(self) -> tuple[Metric, ...]:
        """What was measured of the global models, the accuracy first."""
        names = dict.fromkeys(name for run in self.runs for name in run.evaluation)
        return self._known(map(measured, sorted(names, key=lambda name: name != ACCURACY.key)))

    @cached_property
    def learnt(self) -> tuple[Metric, ...]:
        """What the rules learnt."""
        names = dict.fromkeys(name for run in self.runs for name in run.metrics)
        return self._known(metric for name in names for metric in learnt(name))

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """Everything of which at least one run has at least one value."""
        return self._known((*self.measured, CLIENT_LOSS, *self.learnt, *COSTS))

    def _known(self, metrics: Iterable[Metric]) -> tuple[Metric, ...]:
        return tuple(m for m in metrics if any(group.has(m) for group in self.groups))

    @property
    def said(self) -> tuple[str, ...]:
        """What the servers had to say of their rounds."""
        return tuple(sentence for group in self.groups for sentence in group.said)

    @property
    def loses_uploads(self) -> bool:
        """Whether any upload was lost in any run."""
        return any(np.nansum(group.values(LOST)) > 0 for group in self.groups)

    @property
    def loses_alike(self) -> bool:
        """Whether all rules saw the same losses, as they should, as far as each of them got."""
        lost = [group.per_round(LOST)[0] for group in self.groups]
        longest = max(lost, key=len, default=np.empty(0))
        return all(np.array_equal(one, longest[: len(one)], equal_nan=True) for one in lost)

    @property
    def same_split(self) -> bool:
        """Whether all runs divide the data in the same way."""
        return _same_split(self.runs)

    def target(self) -> float | None:
        """A target that tells the rules apart: the median rule's final accuracy, rounded down.

        It is a multiple of 5 percent (of 1 percent below 5), so that about half of the rules reach
        it and the number is one a reader remembers.
        """
        finals = [group.final().mean for group in self.groups]
        finals = sorted(final for final in finals if math.isfinite(final))
        if not finals:
            return None
        median = finals[(len(finals) - 1) // 2]
        # The nudge keeps 0.85, which is stored a little below 85 percent, at 85 percent.
        percent = math.floor(median * 100 + 1e-9)
        percent = percent // 5 * 5 or percent
        return percent / 100 if percent else None


def compare(runs: Sequence[History]) -> Comparison:
    """A comparison of runs, grouped by rule and seed.

    Runs of one name whose settings differ are different groups, labelled by the settings that
    differ; so are runs of one name and seed from different folders, labelled by folder. Where some
    seeds of a group have finished, those that have not are left out; where none has, all count up
    to the round they all reached. The remarks say so.

    Raises:
        HistoryError: no run has a single round.
    """
    remarks = [f"{run.path} has no rounds yet." for run in runs if not run.records]
    groups = []
    for name, members in labelled([run for run in runs if run.records]).items():
        used, said = _comparable(name, members)
        remarks += said
        groups.append(Group(name, members[0].rule, used))
    if not groups:
        raise HistoryError(
            f"None of the {len(runs)} histories has a round in it yet; wait for the first round, "
            "or run again."
        )
    groups.sort(key=lambda group: sort_key(group.rule, group.label))
    return Comparison(tuple(groups), tuple(remarks))


def load(folders: Sequence[str | os.PathLike[str]]) -> Comparison:
    """A comparison of every history under the given folders, read and grouped.

    Raises:
        HistoryError: there is none, one of them is not a history, or none has a round yet.
    """
    return compare(History.read_all(folders))


def _comparable(label: str, members: Sequence[History]) -> tuple[tuple[History, ...], list[str]]:
    """The runs that count, cut to their common rounds, and what to say about the others."""
    done = [run for run in members if run.finished]
    remarks = [
        f"{label}, seed {run.seed}: unfinished after {len(run.records)}"
        + (f" of {run.rounds_planned}" if run.rounds_planned else "")
        + (" rounds; left out." if done else " rounds.")
        for run in members
        if not run.finished
    ]
    used = done or list(members)
    common = min(len(run.records) for run in used)
    if any(len(run.records) > common for run in used):
        remarks.append(f"{label}: compared over the {common} rounds that all its seeds have.")
    cut = (replace(run, records=run.records[:common]) for run in used)
    return tuple(sorted(cut, key=lambda run: run.seed)), remarks


def _same_split(runs: Sequence[History]) -> bool:
    first = runs[0]
    return all(
        run.clients == first.clients and run.run.clients == first.run.clients for run in runs
    )

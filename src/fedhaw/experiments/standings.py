"""Who wins over many cells: average ranks, wins and losses, divergences, and the tables of them.

How each is counted in a cell stands in `fedhaw.experiments.scores`; ranks are averaged over cells,
the others counted in cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedhaw.experiments.scores import CHANCES, FLOOR, CellScores, Difference, Metric, Verdict
from fedhaw.reports import Column, Notation, Spread, Table
from fedhaw.reports.metrics import COUNT, PERCENT

_POINTS = Notation("points", 100.0, decimals=2)
_COUNTED: tuple[tuple[Metric, Verdict], ...] = (
    ("final", "better"),
    ("final", "worse"),
    ("mean", "better"),
    ("mean", "worse"),
)


@dataclass(frozen=True, eq=False)
class Standings:
    """The contenders over all cells.

    Attributes:
        cells: at least one.
        subject: the contender whose case it is.
        reference: the contender that sets each cell's target, and with it what can be survived.
        titles: by contender, in the order of the tables.
    """

    cells: tuple[CellScores, ...]
    subject: str
    reference: str
    titles: Mapping[str, str]

    def average_rank(self, contender: str, metric: Metric) -> float:
        """Over all cells."""
        return float(np.mean([cell.ranks(metric)[contender] for cell in self.cells]))

    def difference(self, cell: CellScores, contender: str, metric: Metric) -> Difference:
        """The subject minus a contender in one cell."""
        return Difference.between(cell.scores[self.subject], cell.scores[contender], metric)

    def where(self, verdict: Verdict, contender: str, metric: Metric) -> tuple[str, ...]:
        """The cells in which the subject is better, worse or even."""
        return tuple(
            cell.key
            for cell in self.cells
            if self.difference(cell, contender, metric).verdict == verdict
        )

    def divergences(self, contender: str) -> tuple[str, ...]:
        """The cells in which a contender diverged and the reference did not."""
        return tuple(cell.key for cell in self.cells if cell.diverged(contender, self.reference))

    def cell_table(self, notice: str, notes: tuple[str, ...] = ()) -> Table:
        """A row a cell and contender."""
        subject, reference = self.titles[self.subject], self.titles[self.reference]
        columns = (
            Column("Cell"),
            Column("Rule"),
            Column("At the end", PERCENT, spread=True),
            Column("Mean over rounds", PERCENT, spread=True),
            Column("Rounds to target", COUNT, spread=True),
            Column(f"{subject} minus it, at the end", _POINTS),
            Column("Standard error", _POINTS),
            Column(f"{subject} is"),
            Column("Diverged"),
            Column("Seeds"),
        )
        rows = tuple(
            (
                cell.title,
                self.titles[name],
                Spread.of(cell.scores[name].final),
                Spread.of(cell.scores[name].mean),
                self._reach(cell, name),
                *self._against(cell, name),
                "yes" if cell.diverged(name, self.reference) else None,
                float(len(cell.scores[name].seeds)),
            )
            for cell in self.cells
            for name in self.titles
        )
        explained = (
            f"± is the sample standard deviation over seeds. A cell's target is {reference}'s mean "
            "accuracy at the end; a dash means that no seed reached it, and 2 of 3 that only two "
            f"of three seeds did. {subject} minus it is the mean of the differences seed by seed, "
            "with its standard error. " + self._verdicts()
        )
        title = f"{subject} without tuning, cell by cell"
        return Table(columns, rows, title, notice, (explained, *notes))

    def overall_table(self, notice: str, notes: tuple[str, ...] = ()) -> Table:
        """A row a contender, over all cells."""
        subject, reference = self.titles[self.subject], self.titles[self.reference]
        ranks = Notation(decimals=2)
        columns = (
            Column("Rule"),
            Column("Rank, at the end", ranks, "lower"),
            Column("Rank, mean over rounds", ranks, "lower"),
            Column(f"{subject} better, at the end"),
            Column("worse, at the end"),
            Column(f"{subject} better, mean over rounds"),
            Column("worse, mean over rounds"),
            Column("Diverged"),
        )
        rows = tuple(
            (
                title,
                self.average_rank(name, "final"),
                self.average_rank(name, "mean"),
                *(self._count(verdict, name, metric) for metric, verdict in _COUNTED),
                float(len(self.divergences(name))),
            )
            for name, title in self.titles.items()
        )
        explained = (
            f"Ranks are averages over {len(self.cells)} cells, 1 is best of {len(self.titles)}. "
            f"The other numbers count cells: in which {subject} is better or worse than the rule, "
            f"and in which the rule diverged (ended below {CHANCES:g} times chance or had a loss "
            f"that is not finite) on a seed on which {reference} did not. " + self._verdicts()
        )
        title = f"{subject} without tuning, over all cells"
        return Table(columns, rows, title, notice, (explained, *notes))

    def described(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "subject": self.subject,
            "cells": {
                cell.key: {
                    name: {
                        "seeds": list(own.seeds),
                        "final": own.final.tolist(),
                        "mean": own.mean.tolist(),
                        "rounds_to_target": own.rounds_to(self._target(cell)),
                        "diverged": cell.diverged(name, self.reference),
                    }
                    for name, own in cell.scores.items()
                }
                for cell in self.cells
            },
            "contenders": {
                name: {
                    "rank": {m: self.average_rank(name, m) for m in ("final", "mean")},
                    **(
                        {
                            f"subject_{verdict}_{metric}": list(self.where(verdict, name, metric))
                            for metric, verdict in _COUNTED
                        }
                        if name != self.subject
                        else {}
                    ),
                    "diverged": list(self.divergences(name)),
                }
                for name in self.titles
            },
        }

    def _against(
        self, cell: CellScores, contender: str
    ) -> tuple[float, float, str] | tuple[None, None, None]:
        if contender == self.subject:
            return None, None, None
        found = self.difference(cell, contender, "final")
        return found.mean, found.error, found.verdict

    def _count(self, verdict: Verdict, contender: str, metric: Metric) -> float | None:
        if contender == self.subject:
            return None
        return float(len(self.where(verdict, contender, metric)))

    def _target(self, cell: CellScores) -> float:
        return float(cell.scores[self.reference].final.mean())

    def _reach(self, cell: CellScores, contender: str) -> Spread | str | None:
        own = cell.scores[contender]
        rounds = own.rounds_to(self._target(cell))
        if not rounds:
            return None
        # A mean over the lucky seeds alone would flatter the rule.
        all_did = len(rounds) == len(own.seeds)
        return Spread.of(rounds) if all_did else f"{len(rounds)} of {len(own.seeds)}"

    def _verdicts(self) -> str:
        return (
            f"{self.titles[self.subject]} is better or worse where the mean difference is more "
            f"than two standard errors and more than {100 * FLOOR:g} points, a low bar: of equal "
            "rules, two standard errors are exceeded in 12 % of cells with five seeds and in 18 % "
            "with three."
        )

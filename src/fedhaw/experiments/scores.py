"""The contenders in one cell: ranks, differences seed by seed, and who diverged.

A cell is one federation on which every contender runs with the same seeds. Two accuracies of a run
count: at the end, and averaged over all rounds, which rewards those that learn fast and steadily.

**Ranks.** In each cell the contenders are ranked by their mean over seeds, 1 is best, equals share
the mean of their ranks.

**Differences.** The subject minus another on the same seed. With d their mean and e its standard
error (sample standard deviation / sqrt(seeds)), the subject is *better* when d > max(2 e, FLOOR),
*worse* when -d is, else *even*. That takes two seeds. Two standard errors of few seeds are a low
bar: equals exceed it in 12 % of cells with five seeds and in 18 % with three (Student's t).

**Divergence.** A run diverged when it ends below 1.5 times chance or its loss was not finite in any
round. It counts only where the reference did not on the same seed: a client learning rate may be
hopeless in itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.history import History
from fedhaw.reports import Spread

FLOOR = 0.005
"""Half a percentage point: what the choice of the last round alone moves an accuracy by."""

CHANCES = 1.5
"""A run that ends below so many times chance has learnt nothing, or lost what it had."""

Vector: TypeAlias = NDArray[np.float64]
Metric: TypeAlias = Literal["final", "mean"]
Verdict: TypeAlias = Literal["better", "worse", "even", "one seed"]


@dataclass(frozen=True, eq=False)
class Scores:
    """One contender in one cell: S seeds over T rounds.

    Attributes:
        seeds: (S,) each once.
        accuracy: (S, T) between 0 and 1.
        loss: (S, T) on the test samples; NaN where it was not finite.
    """

    seeds: tuple[int, ...]
    accuracy: Vector
    loss: Vector

    @classmethod
    def of(cls, runs: Sequence[History]) -> "Scores":
        """From histories, one a seed; an accuracy that was not recorded counts as none at all."""
        accuracy = np.stack([run.accuracy for run in runs])
        loss = np.stack([run.loss for run in runs])
        return cls(tuple(run.seed for run in runs), np.nan_to_num(accuracy, nan=0.0), loss)

    @property
    def final(self) -> Vector:
        """(S,) accuracy at the end."""
        return self.accuracy[:, -1]

    @property
    def mean(self) -> Vector:
        """(S,) accuracy averaged over the rounds."""
        return np.asarray(self.accuracy.mean(axis=1))

    def rounds_to(self, target: float) -> list[float]:
        """After how many rounds each seed that reached the target first did."""
        hits = [np.flatnonzero(row >= target) for row in self.accuracy]
        return [float(hit[0] + 1) for hit in hits if hit.size]

    def diverged(self, chance: float) -> set[int]:
        """The seeds that did."""
        bad = (self.final < CHANCES * chance) | ~np.isfinite(self.loss).all(axis=1)
        return set(compress(self.seeds, bad))


@dataclass(frozen=True)
class Difference:
    """The subject minus another contender, seed by seed.

    Attributes:
        mean: over the seeds both have.
        error: the mean's standard error; NaN for one seed.
    """

    mean: float
    error: float

    @classmethod
    def between(cls, subject: Scores, other: Scores, metric: Metric) -> "Difference":
        """Over the seeds that both were run with."""
        ours = dict(zip(subject.seeds, getattr(subject, metric), strict=True))
        theirs = dict(zip(other.seeds, getattr(other, metric), strict=True))
        spread = Spread.of([ours[seed] - theirs[seed] for seed in ours if seed in theirs])
        return cls(spread.mean, spread.std / math.sqrt(max(spread.seeds, 1)))

    @property
    def verdict(self) -> Verdict:
        """Whether the subject is better, worse, or neither."""
        if not math.isfinite(self.error):
            return "one seed"
        if abs(self.mean) <= max(2 * self.error, FLOOR):
            return "even"
        return "better" if self.mean > 0 else "worse"


@dataclass(frozen=True)
class CellScores:
    """All contenders in one cell.

    Attributes:
        key: the cell's short name.
        title: for people.
        chance: the accuracy of guessing.
        scores: by contender.
    """

    key: str
    title: str
    chance: float
    scores: Mapping[str, Scores]

    def ranks(self, metric: Metric) -> dict[str, float]:
        """By contender; 1 is best, equals share the mean of their ranks."""
        means = {name: float(getattr(own, metric).mean()) for name, own in self.scores.items()}
        return {
            name: 1.0
            + sum(other > mean for other in means.values())
            + (sum(other == mean for other in means.values()) - 1) / 2
            for name, mean in means.items()
        }

    def diverged(self, contender: str, reference: str) -> bool:
        """Whether a contender did on some seed on which the reference did not."""
        other = self.scores[reference]
        safe = set(other.seeds) - other.diverged(self.chance)
        return bool(self.scores[contender].diverged(self.chance) & safe)

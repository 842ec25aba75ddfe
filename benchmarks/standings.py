"""Ranks of rules over many federations, and differences with their errors, corrected for number.

A cell is one federation; every rule that was run in it has a score for each seed. Ranks are those
of the means over the seeds that all rules were run with. A difference is the subject's score minus
another rule's on the same seeds; its two-sided p by Student's t is corrected over all cells of the
comparison after Holm (1979), so that some cell is called better or worse by chance in 5 % of such
tables. "Ahead in" counts cells with a higher mean, whether or not chance could do that; "a point
behind" those with a mean below -1 by more than two standard errors, where there is more than one
seed, and below -1 elsewhere.
"""

import math
from collections.abc import Mapping

import numpy as np

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By cell, by rule, by seed: percent."""

LEVEL = 0.05
MARGIN = 1.0
"""Points by which a mean may be behind, and which no user would mind."""


COLUMNS = (
    "rule", "rank", "federations", "ahead in", "better", "worse", "a point behind",
    "mean difference", "least difference", "where",
)  # fmt: skip
"""Of `rows`; from "ahead in" on they tell of the subject against the rule."""


def shared(scores: Scores) -> list[str]:
    """The cells in which every rule was run; ranks are over these."""
    rules = {name for cell in scores.values() for name in cell}
    return [key for key, cell in scores.items() if rules <= cell.keys()]


def rows(scores: Scores, subject: str) -> list[tuple[str, ...]]:
    """A row a rule, over the cells in which it and the subject were run, the best rank first."""
    rules = {name for cell in scores.values() for name in cell}
    full = [_ranks(scores[key]) for key in shared(scores)]
    ranks = {name: np.mean([cell[name] for cell in full]) for name in rules if full}
    found = []
    for name in sorted(rules, key=lambda name: (ranks.get(name, math.inf), name)):
        rank = f"{ranks[name]:.2f}" if full else "-"
        differences = {
            key: _difference(cell[subject], cell[name])
            for key, cell in scores.items()
            if name != subject and subject in cell and name in cell
        }
        if not differences:
            found.append((name, rank, str(len(full)), *[""] * (len(COLUMNS) - 3)))
            continue
        told = _holm({key: p for key, (_, _, p) in differences.items()})
        means = {key: mean for key, (mean, _, _) in differences.items()}
        least = min(means, key=means.__getitem__)
        error = differences[least][1]
        found.append((
            name,
            rank,
            str(len(means)),
            str(sum(mean > 0 for mean in means.values())),
            str(sum(told[key] and mean > 0 for key, mean in means.items())),
            str(sum(told[key] and mean < 0 for key, mean in means.items())),
            str(sum(_behind(mean, error) for mean, error, _ in differences.values())),
            f"{np.mean(list(means.values())):+.1f}",
            f"{means[least]:+.1f}" + ("" if math.isnan(error) else f" ± {error:.1f}"),
            least,
        ))  # fmt: skip
    return found


def _ranks(cell: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    both = set.intersection(*(set(seeds) for seeds in cell.values()))
    means = {name: float(np.mean([seeds[s] for s in both])) for name, seeds in cell.items()}
    return {
        name: 1.0
        + sum(other > own for other in means.values())
        + (sum(other == own for other in means.values()) - 1) / 2
        for name, own in means.items()
    }


def _difference(
    subject: Mapping[int, float], other: Mapping[int, float]
) -> tuple[float, float, float]:
    """Mean, standard error and two-sided p of the differences; NaN and 1 with a single seed."""
    both = np.array([subject[seed] - other[seed] for seed in subject if seed in other])
    if len(both) < 2:
        return float(both.mean()) if len(both) else math.nan, math.nan, 1.0
    error = float(both.std(ddof=1)) / math.sqrt(len(both))
    if error == 0:
        return float(both.mean()), 0.0, 1.0 if both.mean() == 0 else 0.0
    return float(both.mean()), error, _student(abs(both.mean()) / error, len(both) - 1)


def _behind(mean: float, error: float) -> bool:
    return mean + (0 if math.isnan(error) else 2 * error) < -MARGIN


def _student(t: float, freedom: int) -> float:
    """P(|T| > t), by the substitution t = sqrt(freedom) tan(angle)."""
    angles = np.linspace(math.atan(t / math.sqrt(freedom)), math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    whole = math.sqrt(math.pi) * math.gamma(freedom / 2) / math.gamma((freedom + 1) / 2)
    return float(2 * np.trapezoid(density, angles) / whole)


def _holm(p: Mapping[str, float]) -> dict[str, bool]:
    """Which p are below LEVEL when all are looked at."""
    told, still = {}, True
    for i, key in enumerate(sorted(p, key=p.__getitem__)):
        still = still and p[key] < LEVEL / (len(p) - i)
        told[key] = still
    return told

"""Long curves, thinned to what a picture can show.

Half of the rounds that are kept lie at equal distances. The other half are those in which a curve
is lowest or highest within its stretch of rounds, so that a dip of a single round is still there.
Values are never changed: what a thinned curve shows of a round is what was measured in it.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedhaw.history import Vector

MOST_ROUNDS = 800
"""About as many as a wide screen has places for."""


def telling_rounds(curves: Vector, most: int = MOST_ROUNDS) -> NDArray[np.int64]:
    """The rounds to draw, rising, counted from 0; those without any value are not among them.

    Args:
        curves: (C, T) what is drawn together; NaN where there is no value.
        most: how many rounds to keep, about.
    """
    known = np.isfinite(curves)
    rounds = np.flatnonzero(known.any(axis=0))
    if len(rounds) <= most:
        return rounds
    low = np.where(known, curves, np.inf)[:, rounds]
    high = np.where(known, curves, -np.inf)[:, rounds]
    stretches = max(1, most // (4 * len(curves)))
    kept = [np.linspace(0, len(rounds) - 1, most // 2).astype(np.int64)]
    for begin, end in pairwise(np.linspace(0, len(rounds), stretches + 1).astype(np.int64)):
        kept.append(begin + low[:, begin:end].argmin(axis=1))
        kept.append(begin + high[:, begin:end].argmax(axis=1))
    return rounds[np.unique(np.concatenate(kept))]


def telling_rounds_of_many(curves: Vector, most: int = MOST_ROUNDS // 2) -> NDArray[np.int64]:
    """The same for a sheaf of curves, too many to look at each.

    A round tells something where the lowest or the highest curve of all is extreme, or where some
    curve is far from its own mean.

    Args:
        curves: (C, T) what is drawn together; NaN where there is no value.
        most: how many rounds to keep, about.
    """
    known = np.isfinite(curves)
    if not known.any() or curves.shape[1] <= most:
        return telling_rounds(curves, most)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd values are drawn as they are
        mean = np.where(known, curves, 0.0).sum(axis=1, keepdims=True) / count
        distance = np.where(known, abs(curves - mean), -np.inf)
    outline = np.stack(
        [
            np.where(known, curves, np.inf).min(axis=0),
            np.where(known, curves, -np.inf).max(axis=0),
            distance.max(axis=0),
        ]
    )
    return telling_rounds(outline, most)

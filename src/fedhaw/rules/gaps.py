"""Which clients stand apart from all others by a gap.

In growth, and in likeness if there is one there, too; `trust` says what these are and mean.
"""

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Vector

MARGIN, GAP, CLEAR = 0.015, 0.02, 1.0
"""In cosines, in cosines, and times the others' spread; see docs/rules/fedhaw-auto.md for how far
honest clients stay from these, and bad ones go beyond them."""

UNCONFIRMED = 2.5
"""Times MARGIN and GAP. Unconfirmed, honest clients of a small CNN on CIFAR-10, D_alpha 0.1, reach
1.1 times these, and random labels 4 times and more; three that flip labels at D_alpha 0.1 reach 1.4
and are missed."""

NEAR = 0.03
"""In cosines: what a running mean of ten rounds may be off by."""

MENDING = 0.7
"""Liars' updates are hardly shorter than ever when these are judged; those of honest clients that
the model gets wrong for a while have fallen by half then."""


def beyond_the_gap(
    likeness: Vector,
    growth: Vector,
    examples: Vector,
    excused: NDArray[np.bool_],
    still: Vector,
    most: int,
    room: float,
) -> list[int]:
    """Which clients stand apart most clearly; none where it is not clear.

    Args:
        likeness: (n,) their scores.
        growth: (n,) theirs.
        examples: (n,) their numbers of samples.
        excused: (n,) whether they were different from the start.
        still: (n,) how long their updates are beside the longest they have been.
        most: how many there can be.
        room: how many samples these can have.
    """
    clearest, apart = CLEAR, np.zeros(0, dtype=np.intp)
    for side, shrinking in ((growth, True), (-growth, False)):
        order = np.argsort(side)
        # Who is excused is not among the few, and shields nobody by standing further out.
        spared = excused & shrinking
        candidates = order[~spared[order]]
        for count in range(1, min(most, len(candidates) - 1) + 1):
            few = candidates[:count]
            further_out = np.flatnonzero(spared & (side <= side[few].max()))
            others = np.setdiff1d(order, [*few, *further_out])
            if examples[few].sum() > room:
                break
            gap = _gap(side[few], side[others])
            # Who shrinks the model, or else who is left when all others do.
            shrunk = -growth[few if shrinking else others].mean()
            alike = _gap(likeness[few], likeness[others])
            confirmed = alike > NEAR
            guilty = shrinking or growth[few].min() > 0
            guilty = guilty and still[few].mean() > MENDING
            wide = 1.0 if confirmed else UNCONFIRMED
            if gap > wide * GAP and shrunk > wide * MARGIN and guilty:
                clarity = _ratio(gap, side[others]) + _ratio(alike, likeness[others])
                if clarity > clearest:
                    clearest, apart = clarity, few
    return [int(k) for k in apart]


def _gap(few: Vector, others: Vector) -> float:
    """How far the few lie below all the others; 0 where they do not."""
    return max(float(others.min() - few.max()), 0.0)


def _ratio(gap: float, others: Vector) -> float:
    spread = float(np.ptp(others))
    return gap / spread if spread > 0 else np.inf if gap > 0 else 0.0

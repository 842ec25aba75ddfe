"""Updates that are against all others of their round.

Trust takes twenty rounds, and that is long where updates are reversed or labels flipped: a few of
those harm a model. But as soon as they do, all others pull it back, and that shows in a single
round: one update, or a few that may be each other's like, are at an obtuse angle to every other, by
more than OPPOSED to their mean, while each of the others has its like, nearer than ALIKE; and they
are LONGER than the median, or FAR_LONGER where their growth (`trust.py`) is not beyond all others'
by GAP.

That alone an honest client which alone holds a class may do, too. So its update, or theirs, may
weigh half of what the others' do together at a length that is usual (`auto_lengths`), and no more:
while the others have much to do they win, and a class that only few hold is learnt when they find
less.

It is *proven* that they lie, and nothing of them counts in the round, if their growth is below all
others', or above it while all others' is negative, which is what reversed updates do to a model;
or if they have belonged to the others before. Nothing is proven against who was against all others
from the start (`trust.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedhaw.rules.base import Vector
from fedhaw.rules.gaps import GAP
from fedhaw.rules.trust import ALIKE, JUDGED

OPPOSED, LONGER, FAR_LONGER = 0.3, 1.25, 3.0
"""In cosines, and twice times the median length; benchmarks/honest_updates.py shows how far honest
clients stay from these."""


class Opponents(NamedTuple):
    """Updates that are against all others of their round.

    Attributes:
        updates: which.
        proven: those of them against whom there is more than that.
        apart: those whose clients are outsiders when it happens again.
    """

    updates: Sequence[int] = ()
    proven: Sequence[int] = ()
    apart: Sequence[int] = ()


def opposed(
    gram: Vector,
    shares: Vector,
    growth: Vector,
    turned: Vector,
    most: int,
    highest: float = 0.0,
) -> Opponents:
    """The updates of a round, `most` at most, that are against all others.

    Args:
        gram: (K, K) the inner products of the updates, none of which has length 0.
        shares: (K,) of the data behind them.
        growth: (K,) their cosines with the global model.
        turned: (K,) whether their clients have been like the others so far.
        most: how many there can be.
        highest: the longest that was usual in any round.
    """
    nobody = Opponents()
    lengths = np.sqrt(np.diag(gram))
    cosines = gram / np.outer(lengths, lengths)
    few = _at_obtuse_angles(cosines, most) if len(gram) >= JUDGED else []
    if not few:
        return nobody
    others = np.setdiff1d(np.arange(len(gram)), few)
    among, usual = np.ix_(others, others), float(np.median(lengths))
    np.fill_diagonal(cosines, -1.0)
    if cosines[among].max(axis=1).min() <= ALIKE:
        return nobody
    weights = shares[others] * np.minimum(1.0, usual / lengths[others])
    mean = np.sqrt(weights @ gram[among] @ weights)
    against = gram[few][:, others] @ weights < -OPPOSED * lengths[few] * mean
    least, largest = growth[others].min(), growth[others].max()
    shrinks, stretches = least - growth[few] > GAP, growth[few] - largest > GAP
    beside = max(usual, highest / 2)
    long = lengths[few] > np.where(shrinks | stretches, LONGER, FAR_LONGER) * beside
    if not (against & long).all():  # two honest clients that share a class may be near each other
        return nobody
    wrong = shrinks | (stretches & (turned[few] | (largest < 0)))
    apart = [k for k, sure in zip(few, wrong, strict=True) if sure]
    return Opponents(few, few if (wrong | turned[few]).all() else [], apart)


def _at_obtuse_angles(cosines: Vector, most: int) -> list[int]:
    """The smallest groups, of `most` in all, of which nobody is near anybody outside the group."""
    near, alone = cosines >= 0, np.ones(len(cosines), dtype=bool)
    np.fill_diagonal(near, True)  # also where an update is too long for its square
    groups = []
    while alone.any():
        group = near[alone.argmax()]
        while (wider := near[group].any(axis=0)).sum() > group.sum():
            group = wider
        groups.append(np.flatnonzero(group).tolist())
        alone &= ~group
    few: list[int] = []
    for group_of_few in sorted(groups, key=len):
        if len(few) + len(group_of_few) > most:
            break
        few += group_of_few
    return few

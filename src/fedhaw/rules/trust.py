"""Whom to trust, told from how much clients' updates resemble each other.

Where most clients learn the same thing their updates point the same way, and whoever sends noise,
labels of its own making or a reversed update does not. Where clients merely differ, some are less
like the others than others are, but nothing separates them. So it is not a small likeness that is
suspect, but a gap. With Delta_k = w_k - w, for every two clients that arrived together,

    likeness_jk = running mean over rounds of cos(Delta_j, Delta_k)
    score_k     = mean of the larger half of likeness_k1, likeness_k2, ...
    spread      = largest score - smallest score of those above a gap
    outsiders   : fewer than half of all, below a gap > max(GAP, RATIO spread)

The larger half, because a minority that agrees with itself must not lift itself; fewer than half,
because of two halves nobody can say which is right. An outsider stays one until its score, taken
over those who are trusted, comes within NEAR of the median of theirs while that is above GAP: where
hardly anybody resembles anybody nothing can be told, and verdicts stand. Cosines know no unit:
nothing here depends on the model's, the loss's or the clients' learning rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Client, Vector

GAP = 0.15
"""In cosines. A gap between honest clients that was wide for its spread was never that wide."""

RATIO = 2.0
"""Of the gap to the others' spread; honest clients that differ a lot are spread out themselves."""

NEAR = 0.03
"""In cosines. Once the model no longer follows the outsiders the others have less in common, and a
gap that has closed is no sign of an outsider's having changed."""

RATE = 0.1
"""The last ten rounds or so count: a client that mends its ways is seen to have done so."""

ROUNDS = 10
"""A client is judged after so many; after 5, with uploads lost, honest ones were set apart."""

JUDGED = 7
"""Fewer clients than this are too few for a gap to mean anything."""

REMEMBERED = 256
"""Clients whose likenesses are kept; beyond that, those not heard of for longest are forgotten."""


@dataclass(frozen=True)
class Evidence:
    """What is known of the clients' likeness.

    Attributes:
        seen: in how many rounds each client's update was compared; the longest unheard of first.
        likeness: (n, n) the running means, in the order of `seen`.
        pairs: (n, n) how many rounds are in each.
    """

    seen: Mapping[Client, float] = field(default_factory=dict)
    likeness: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    pairs: Vector = field(default_factory=lambda: np.zeros((0, 0)))

    def after(self, names: Sequence[Client], gram: Vector) -> "Evidence":
        """The evidence with one more round.

        Args:
            names: the clients whose updates arrived.
            gram: (K, K) the inner products of those updates.
        """
        lengths = np.sqrt(np.diag(gram))
        moved = np.flatnonzero(lengths > 0)
        if len(moved) < 3:
            return self
        cosines = gram[np.ix_(moved, moved)] / np.outer(lengths[moved], lengths[moved])
        others = ~np.eye(len(moved), dtype=bool)

        present = [names[int(k)] for k in moved]
        order = [client for client in self.seen if client not in set(present)] + present
        order = order[-max(REMEMBERED, len(present)) :]
        likeness, pairs = self._in_order(order, self.likeness), self._in_order(order, self.pairs)
        here = np.ix_(*[range(len(order) - len(present), len(order))] * 2)
        pairs[here] += others
        rate = np.maximum(RATE, 1 / np.maximum(pairs[here], 1))
        likeness[here] += np.where(others, rate * (cosines - likeness[here]), 0.0)
        seen = {client: self.seen.get(client, 0.0) for client in order}
        return Evidence(seen | {client: seen[client] + 1 for client in present}, likeness, pairs)

    def scores(self, outsiders: Sequence[Client] = ()) -> dict[Client, float]:
        """How much each client that can be judged resembles the larger half of the others.

        Args:
            outsiders: whom it does not help to resemble.
        """
        scores, trusted = {}, ~np.isin(np.arange(len(self.seen)), self._places(outsiders))
        for client, rounds, row, pairs in zip(
            self.seen, self.seen.values(), self.likeness, self.pairs, strict=True
        ):
            known = np.sort(row[trusted & (pairs > 0)])
            if rounds >= ROUNDS and len(known):
                scores[client] = float(known[-max(1, len(known) // 2) :].mean())
        return scores

    def _places(self, clients: Sequence[Client]) -> list[int]:
        chosen = set(clients)
        return [place for place, client in enumerate(self.seen) if client in chosen]

    def outsiders(self, before: Sequence[Client] = ()) -> tuple[Client, ...]:
        """The clients that are set apart from the others.

        Args:
            before: who was so far.
        """
        scores = self.scores(before)
        rest = sorted((c for c in scores if c not in before), key=scores.__getitem__)
        if len(scores) < JUDGED or not rest:
            return tuple(client for client in before if client in self.seen)
        values = np.array([scores[client] for client in rest])
        usual = float(np.median(values))
        back = {c for c in before if usual > GAP and scores.get(c, -np.inf) >= usual - NEAR}
        apart = set(before).difference(back)
        # Where some are out already, fewer of the others make less than half of all.
        most = (len(scores) + 1) // 2 - 1 - len(apart)
        apart.update(rest[: _below_the_gap(values, most)])
        return tuple(client for client in self.seen if client in apart)

    def _in_order(self, order: Sequence[Client], matrix: Vector) -> Vector:
        place = {client: i for i, client in enumerate(self.seen)}
        new = [i for i, client in enumerate(order) if client in place]
        old = [place[order[i]] for i in new]
        sorted_matrix = np.zeros((len(order), len(order)))
        sorted_matrix[np.ix_(new, new)] = matrix[np.ix_(old, old)]
        return sorted_matrix


def _below_the_gap(values: NDArray[np.float64], most: int) -> int:
    """How many of the sorted values, `most` at most, lie below the clearest gap; 0 without one."""
    best, apart = RATIO, 0
    for below in range(1, most + 1):
        gap, spread = values[below] - values[below - 1], values[-1] - values[below]
        ratio = gap / spread if spread > 0 else np.inf
        if gap > GAP and ratio > best:
            best, apart = ratio, below
    return apart

"""Logits, of which a softmax makes weights: one for every client, known by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedhaw.rules.base import Client, InvalidRule, Vector

Joining: TypeAlias = Callable[[Vector, Vector], ArrayLike]
"""(K,) shares of the round's data and (K,) known values, NaN for who joins -> (K,) values.

Only the values of those who join are used.
"""


@dataclass(frozen=True)
class Logits:
    """The logits of all clients seen so far.

    Attributes:
        of: by name.
    """

    of: Mapping[Client, float]

    def at(self, cohort: Sequence[Client]) -> Vector:
        """(K,) those of `cohort`, in its order; NaN for who was never seen."""
        return np.array([self.of.get(client, np.nan) for client in cohort], dtype=np.float64)

    def set(self, cohort: Sequence[Client], values: Vector) -> "Logits":
        """The same logits but for those of `cohort`, which are (K,) `values`."""
        return Logits({**self.of, **dict(zip(cohort, values.tolist(), strict=True))})


def log_shares(shares: Vector, known: Vector) -> Vector:
    """Logits that give those who join their share of the data under a softmax.

    The others keep their weights relative to each other, and get the share that they hold together.
    A client without data is at -inf, which is not remembered: it joins anew when it has some.
    """
    there = ~np.isnan(known)
    logits: Vector = np.log(shares)
    held = shares[there].sum()
    if held > 0:
        logits = logits + (np.logaddexp.reduce(known[there]) - np.log(held))
    return logits


def bare_shares(shares: Vector, known: Vector) -> Vector:
    """The shares themselves as logits, as the letter is printed, whatever the others have."""
    return shares


def with_newcomers(name: str, values: Vector, shares: Vector, joining: Joining) -> Vector:
    """(K,) the values of a round's clients, those that are not finite begun by `joining`.

    Args:
        name: of the coefficient, for the sentence of an error.
        values: (K,) what each client has; not finite: it joins, for the first time or anew.
        shares: (K,) each client's share of the round's data.
        joining: where those who join begin.

    Returns:
        `values` itself if nobody joins.
    """
    known = np.where(np.isfinite(values), values, np.nan)
    joins = np.isnan(known)
    if not joins.any():
        return values
    with np.errstate(divide="ignore"):
        begun = np.asarray(joining(shares, known), dtype=np.float64)
    if begun.shape != known.shape or np.isnan(begun[joins]).any():
        raise InvalidRule(
            f"The start of {name!r} must give a number for each of the round's {len(known)} "
            f"clients; got {begun!r}."
        )
    return np.where(joins, begun, known)

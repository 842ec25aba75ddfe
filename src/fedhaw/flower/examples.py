"""How many examples a client is believed to have.

A client's number of examples is its own word, and its weight. With N_k what it says, over the
clients of a round,

    counted_k = min(N_k, limit median_j N_j, most, sum_{j != k} N_j / 5)

so that nobody weighs more than `limit` times as much as a middling client, nor more than a sixth of
all, whatever it says: not in one round, and not for good where a rule remembers what it began with.
A client that behaves and then lies is seen when it has done harm, and with a quarter of all it did
much (docs/threat-model.md). Two clients are no majority: a median says something from three on, and
a sixth of all is much only where there are more than a few (`MANY`).

Who suddenly says more than twice of what it said before is believed when it has said so for
`PATIENCE` rounds (`believed`): data do not double overnight, and by then its updates have shown
what it is worth.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from fedhaw.rules.lengths import MAJORITY

LIMIT = 10.0

MANY = 7
"""Clients from which on none may weigh more than a sixth of all: fewer are a sixth or more."""

OTHERS = 5.0
"""How many times as much as one client all others weigh, at least."""

SUDDEN, PATIENCE = 2.0, 20
"""How many times what it said before a client may say at once, and the rounds after which more is
believed."""


def believed(before: float | None, claim: float, since: int) -> bool:
    """Whether a client has as many examples as it says.

    Args:
        before: what it said before; None for a newcomer.
        claim: what it says.
        since: for how many rounds it has said more than before.
    """
    return not before or claim <= SUDDEN * before or since >= PATIENCE


@dataclass(frozen=True)
class ExamplesLimit:
    """A limit on what clients say of their data.

    Attributes:
        times: how many times the median of the round a client may count; 0 for any.
        most: how many examples it may count at most; None for any.
    """

    times: float = LIMIT
    most: float | None = None

    def counted(self, claims: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
        """The examples that count of each client, and a sentence for each that claims more."""
        most = math.inf if self.most is None else self.most
        above_zero = [claim for claim in claims.values() if claim > 0]
        if self.times and len(above_zero) >= MAJORITY:
            most = min(most, self.times * median_low(above_zero))
        counted = {client: min(claim, most) for client, claim in claims.items()}
        if self.times and len(above_zero) >= MANY:
            total = sum(counted.values())
            counted = {c: min(n, (total - n) / OTHERS) for c, n in counted.items()}
        events = [
            f"client {client} says it has {claim:.6g} examples; {counted[client]:.6g} count"
            for client, claim in claims.items()
            if claim > counted[client]
        ]
        return counted, events

"""How many examples a client is believed to have.

A client's number of examples is its own word, and its weight. With N_k what it says, over the
clients of a round,

    counted_k = min(N_k, limit median_j N_j, most)

so that nobody weighs more than `limit` times as much as a middling client, whatever it says: not in
one round, and not for good where a rule remembers what it began with. Two clients are no majority:
a median says something from three on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from fedhaw.rules.lengths import MAJORITY

LIMIT = 10.0


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
        limit = float("inf") if self.most is None else self.most
        above_zero = [claim for claim in claims.values() if claim > 0]
        if self.times and len(above_zero) >= MAJORITY:
            limit = min(limit, self.times * median_low(above_zero))
        events = [
            f"client {client} says it has {claim:.6g} examples; {limit:.6g} count"
            for client, claim in claims.items()
            if claim > limit
        ]
        return {client: min(claim, limit) for client, claim in claims.items()}, events

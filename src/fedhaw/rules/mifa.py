"""MIFA: a client that is not heard is replaced by its last update.

    G_k    = the last update w_k - w that arrived of client k; 0 before the first
    w(t+1) = w + sum_k N_k G_k / sum_k N_k          over all clients that were ever asked

While everybody arrives it is FedAvg. A lost client's last update is used again, at full length
however old it is, and so is that of a client that was not asked.

The updates of all clients are kept, N x P numbers; those of large models lie in a mapped file, not
in the heap. Their sum is kept too, in float64, so that a round reads and writes only the updates of
those that were heard.

Gu, Huang, Zhang, Huang, "Fast Federated Learning in the Presence of Arbitrary Device
Unavailability", NeurIPS 2021.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Client, LastRound, Round, Vector
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.last_updates import Updates, renewed
from fedhaw.rules.passes import blend, like


@dataclass(frozen=True)
class MIFAState(LastRound):
    """What every client said last.

    Attributes:
        updates: by client its last update, (P,).
        examples: by client its number of samples, also of those never heard.
        total: (P,) float64, sum_k N_k G_k; None before the first round.
    """

    updates: Updates = field(default_factory=dict)
    examples: Mapping[Client, float] = field(default_factory=dict)
    total: Vector | None = None


@listed(__name__, "mifa", "MIFA")
@dataclass(frozen=True)
class MIFA:
    """FedAvg over the last update of every client; has no hyper-parameters."""

    def init(self) -> MIFAState:
        """The state before the first round."""
        return MIFAState()

    def aggregate(self, state: MIFAState, current: Round) -> tuple[Array, MIFAState]:
        """The next global model, (P,), and the updates that led to it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, received, N = current.global_model, current.received, current.num_examples
        before = np.array([state.examples.get(client, 0.0) for client in current.clients])
        # What arrived takes the place of the old update; what did not may have a new N_k.
        updates, change = renewed(
            state.updates, current, received, N * received, N * ~received - before
        )
        total = change if state.total is None else state.total + change
        examples = {**state.examples, **dict(zip(current.clients, N.tolist(), strict=True))}
        mean = like(w, total / sum(examples.values()))
        model = checked(blend(1.0, w, 1.0, mean), current)
        return model, MIFAState(
            current.clients, current.shares, updates=updates, examples=examples, total=total
        )

"""FedVARP: what arrives corrects the mean of everybody's last updates.

    y_k    = the last update w_k - w that arrived of client k; 0 before the first
    w(t+1) = w + mean_{k in S} (Delta_k - y_k) + mean_{all k} y_k          Delta_k = w_k - w
    y_k'   = Delta_k for k in S

S are the clients that arrived, "all" those that were ever asked; all count alike, whatever their
data, and those without data do not count. The mean over all takes the place of what is missing,
and the first mean corrects it for what is new. A lost client is one that is not in S.

The updates of all clients are kept, N x P numbers; those of large models lie in a mapped file, not
in the heap. Their sum is kept too, in float64, so that a round reads and writes only the updates of
those that were heard.

Jhunjhunwala, Sharma, Nagarkatti, Joshi, "FedVARP: Tackling the Variance Due to Partial Client
Participation in Federated Learning", UAI 2022.
"""

from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Client, LastRound, Round, Vector
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.last_updates import Updates, renewed
from fedhaw.rules.passes import blend, combine, like
from fedhaw.rules.updates import equal_weights, voters


@dataclass(frozen=True)
class FedVARPState(LastRound):
    """What every client said last.

    Attributes:
        updates: by client its last update, (P,).
        asked: every client with data that was ever asked, also those never heard.
        total: (P,) float64, the sum of the updates; None before the first round.
        weights: (K,) 1/n for each of the n clients that arrived.
    """

    updates: Updates = field(default_factory=dict)
    asked: tuple[Client, ...] = ()
    total: Vector | None = None


@listed(__name__, "fedvarp", "FedVARP")
@dataclass(frozen=True)
class FedVARP:
    """Variance reduction by the last update of every client; has no hyper-parameters."""

    def init(self) -> FedVARPState:
        """The state before the first round."""
        return FedVARPState()

    def aggregate(self, state: FedVARPState, current: Round) -> tuple[Array, FedVARPState]:
        """The next global model, (P,), and the updates that led to it."""
        heard = voters(current)
        if not heard.any():
            return unchanged(current), state
        if (current.received & ~heard).any():
            # The model of a client without data is not used, but looked at all the same.
            checked(combine(current.shares, current.client_models), current)
        w, ones = current.global_model, heard.astype(np.float64)
        with_data = [
            c for c, share in zip(current.clients, current.shares, strict=True) if share > 0
        ]
        asked = tuple(dict.fromkeys((*state.asked, *with_data)))
        updates, change = renewed(state.updates, current, heard, ones, -ones)
        total = np.zeros_like(change) if state.total is None else state.total
        step = change / np.count_nonzero(heard) + total / len(asked)
        model = checked(blend(1.0, w, 1.0, like(w, step)), current)
        weights = equal_weights(heard)
        return model, FedVARPState(
            current.clients, weights, updates=updates, asked=asked, total=total + change
        )

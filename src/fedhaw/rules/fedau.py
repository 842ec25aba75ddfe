"""FedAU: clients that are seldom heard count for the rounds they missed.

    w(t+1)  = w + (1/n) sum_{k in S} omega_k (w_k - w)       S: the clients that arrived
    omega_k = mean length of the client's past intervals between arrivals, 1 before the first

n is the number of clients the server has ever asked. The interval that ends with an upload counts
from the next round on; one that reaches the cap is closed and another begins, so that a client
that returns after a long absence does not shake the model. omega_k estimates 1 / (how often client
k arrives), so that the mean step is that of all clients. All clients count alike, whatever their
data; those without any do not count.

A lost upload and a round in which the client was not asked both lengthen its interval. A round in
which nothing arrived changes nothing, and is not counted.

Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated
Averaging", ICLR 2024.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Client, LastRound, Metrics, Round, Vector, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import blend
from fedhaw.rules.updates import mean_update, voters


@dataclass(frozen=True)
class FedAUState(LastRound):
    """How often every client asked so far was heard.

    Attributes:
        interval_of: per client, omega: the mean length of its closed intervals, in rounds.
        closed: per client, how many intervals that is the mean of.
        waiting: per client, the rounds since its last arrival.
        weights: (K,) the clients' omega, 0 where lost, divided by the sum.
    """

    interval_of: Mapping[Client, float] = field(default_factory=dict)
    closed: Mapping[Client, float] = field(default_factory=dict)
    waiting: Mapping[Client, float] = field(default_factory=dict)

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name: the mean interval of all clients."""
        return {"interval": float(np.mean(list(self.interval_of.values()) or [1.0]))}


@listed(__name__, "fedau", "FedAU")
@dataclass(frozen=True)
class FedAU:
    """FedAvg weighted by how seldom a client is heard.

    Attributes:
        cap: the longest interval, in rounds.
    """

    cap: int = 50

    def __post_init__(self) -> None:
        check_number("FedAU", "cap", self.cap, at_least=1, whole=True)

    def init(self) -> FedAUState:
        """The state before the first round."""
        return FedAUState()

    def aggregate(self, state: FedAUState, current: Round) -> tuple[Array, FedAUState]:
        """The next global model, (P,), and the intervals known after it."""
        heard = voters(current)
        if not heard.any():
            return unchanged(current), state
        asked = [c for c, share in zip(current.clients, current.shares, strict=True) if share > 0]
        omega_of = dict.fromkeys(asked, 1.0) | dict(state.interval_of)
        omega = np.array([omega_of.get(client, 1.0) for client in current.clients]) * heard
        weights = omega / omega.sum()
        delta = mean_update(current, weights)
        model = blend(1.0, current.global_model, float(omega.sum()) / len(omega_of), delta)
        now = {client for client, here in zip(current.clients, heard, strict=True) if here}
        return checked(model, current), self._counted(state, omega_of, now, current, weights)

    def _counted(
        self,
        state: FedAUState,
        omega_of: dict[Client, float],
        heard: set[Client],
        current: Round,
        weights: Vector,
    ) -> FedAUState:
        closed = dict.fromkeys(omega_of, 0.0) | dict(state.closed)
        waiting = {client: state.waiting.get(client, 0.0) + 1 for client in omega_of}
        for client in omega_of:
            if client in heard or waiting[client] >= self.cap:
                past = closed[client]
                omega_of[client] = (past * omega_of[client] + waiting[client]) / (past + 1)
                closed[client], waiting[client] = past + 1, 0.0
        return FedAUState(
            current.clients, weights, interval_of=omega_of, closed=closed, waiting=waiting
        )

"""Coordinate median: of every parameter the middle value of those that arrived.

    w(t+1)_p = median_{k in S} (w_k)_p          S: the clients that arrived and have data

Of an even number the mean of the two in the middle. Every client counts alike, whatever its data,
so that up to half of them may send anything. A lost upload has no vote; when nobody has one, the
model and the state stay.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018.
"""

from dataclasses import dataclass

import numpy as np

from fedhaw.rules.base import Array, Round
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine
from fedhaw.rules.ranks import mean_of_ranks
from fedhaw.rules.updates import equal_weights, voters


@dataclass(frozen=True)
class Median:
    """The median of the client models, parameter by parameter; has no hyper-parameters."""

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and the votes that formed it."""
        who = voters(current)
        if not who.any():
            return unchanged(current), state
        W, n = current.client_models, int(np.count_nonzero(who))
        # A median hides what is not finite: look for it in a sum first.
        checked(combine(current.shares, W), current)
        model = mean_of_ranks(W, np.flatnonzero(who).tolist(), (n - 1) // 2, n // 2 + 1)
        return model, FedAvgState(current.clients, equal_weights(who))

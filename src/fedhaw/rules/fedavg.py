"""FedAvg: each client counts by its share of the data.

    theta_k = N_k / N
    w(t+1)  = sum_k theta_k w_k

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017.
"""

from dataclasses import dataclass, field

import numpy as np

from fedhaw.rules.base import Array, Client, Round, Vector
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.reductions import combine


@dataclass(frozen=True)
class FedAvgState:
    """Nothing is remembered but what the last round did.

    Attributes:
        clients: who took part.
        weights: (K,) their shares of the data.
    """

    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class FedAvg:
    """The average of the client models, weighted by data; has no hyper-parameters."""

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, round: Round) -> tuple[Array, FedAvgState]:  # noqa: A002
        """The next global model, (P,), and the shares that formed it."""
        if round.nothing_arrived:
            return unchanged(round), state
        model = checked(combine(round.shares, round.client_models), round)
        return model, FedAvgState(round.names, round.shares)

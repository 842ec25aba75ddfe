"""FedAvg: each client counts by its share of the data.

    theta_k = N_k / N
    w(t+1)  = sum_k theta_k w_k

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedhaw.listing import listed
from fedhaw.rules.base import Array, LastRound, Needs, Round
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine


@dataclass(frozen=True)
class FedAvgState(LastRound):
    """Nothing is remembered but the last round; the weights are the shares of the data."""


@listed(__name__, "fedavg", "FedAvg")
@dataclass(frozen=True)
class FedAvg:
    """The average of the client models, weighted by data; has no hyper-parameters."""

    needs: ClassVar[Needs] = "sum"

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and the shares that formed it."""
        if current.nothing_arrived:
            return unchanged(current), state
        model = checked(combine(current.shares, current.client_models), current)
        return model, FedAvgState(current.clients, current.shares)

"""FedAvg over arrivals: only the uploads that arrived are averaged.

    w(t+1) = sum_{k in S} N_k w_k / sum_{k in S} N_k          S: the clients that arrived

Without losses it is FedAvg. With losses FedAvg gives a lost client's weight to the model that was
sent out, and so takes a shorter step; this rule gives it to the others, as Flower does. When
nobody of those that arrived has data, the model and the state stay.
"""

from dataclasses import dataclass

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Round
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine
from fedhaw.rules.updates import voters


@listed(__name__, "fedavg-arrivals", "FedAvg over arrivals")
@dataclass(frozen=True)
class FedAvgArrivals:
    """The average of what arrived, weighted by data; has no hyper-parameters."""

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and the weights that formed it."""
        senders = voters(current)
        if not senders.any():
            return unchanged(current), state
        weights = current.shares * senders
        weights /= weights.sum()
        model = checked(combine(weights, current.client_models), current)
        return model, FedAvgState(current.clients, weights)

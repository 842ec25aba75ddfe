"""Coordinate median: of every parameter the middle value of those that arrived.

    w(t+1)_p = median_{k in S} (w_k)_p          S: the clients that arrived and have data

Of an even number the mean of the two in the middle. Every client counts alike, whatever its data,
so that up to half of them may send anything. A lost upload has no vote; when nobody has one, the
model and the state stay.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018.
"""

from dataclasses import dataclass

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Round
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.trimmed_mean import trimmed


@listed(__name__, "median", "Median")
@dataclass(frozen=True)
class Median:
    """The median of the client models, parameter by parameter; has no hyper-parameters."""

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and the votes that formed it."""
        return trimmed(
            state, current, lambda n: (n - 1) // 2
        )  # leaves the one or two in the middle

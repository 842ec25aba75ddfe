"""FedAvgM: FedAvg with momentum on the server.

    Delta  = sum_k p_k (w_k - w),     p_k = N_k / N
    v'     = beta v + Delta           v starts at 0
    w(t+1) = w + eta_s v'

With beta = 0 and eta_s = 1 it is FedAvg. A lost upload is a zero update: the client keeps its
weight, and the momentum of earlier rounds carries on.

Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedhaw.listing import listed
from fedhaw.rules.base import Array, LastRound, Needs, Round, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import blend, like
from fedhaw.rules.updates import mean_update


@dataclass(frozen=True)
class FedAvgMState(LastRound):
    """The server's velocity.

    Attributes:
        velocity: (P,) v, the fading sum of the mean updates; None before the first round.
    """

    velocity: Array | None = None


@listed(__name__, "fedavgm", "FedAvgM")
@dataclass(frozen=True)
class FedAvgM:
    """FedAvg with server momentum.

    Attributes:
        beta: how much of the last velocity stays; 0.9 makes a lasting update count tenfold.
        eta_s: the server's step along the velocity.
    """

    needs: ClassVar[Needs] = "sum"

    beta: float = 0.9
    eta_s: float = 1.0

    def __post_init__(self) -> None:
        check_number("FedAvgM", "beta", self.beta, at_least=0, below=1)
        check_number("FedAvgM", "eta_s", self.eta_s, above=0)

    def init(self) -> FedAvgMState:
        """The state before the first round."""
        return FedAvgMState()

    def aggregate(self, state: FedAvgMState, current: Round) -> tuple[Array, FedAvgMState]:
        """The next global model, (P,), and the velocity that led to it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w = current.global_model
        velocity = mean_update(current, current.shares)
        if state.velocity is not None:
            velocity = blend(self.beta, like(w, state.velocity), 1.0, velocity)
        model = checked(blend(1.0, w, self.eta_s, velocity), current)
        return model, FedAvgMState(current.clients, current.shares, velocity=velocity)

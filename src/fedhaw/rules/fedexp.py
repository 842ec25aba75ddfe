"""FedExP: a longer server step when the clients' updates point apart.

    g_k    = w_k - w,     p_k = N_k / N
    step   = max(1, sum_k p_k |g_k|^2 / (2 (|sum_k p_k g_k|^2 + epsilon)))
    w(t+1) = w + step sum_k p_k g_k

Jhunjhunwala, Wang, Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023.
"""

from dataclasses import dataclass

from fedhaw.listing import listed
from fedhaw.rules.base import Array, LastRound, Metrics, Round, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import blend, combine, subtract, update_products


@dataclass(frozen=True)
class FedExPState(LastRound):
    """The last round's step.

    Attributes:
        step: how far the server went along the mean update.
    """

    step: float = 1.0

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"step": self.step}


@listed(__name__, "fedexp", "FedExP")
@dataclass(frozen=True)
class FedExP:
    """FedAvg with an extrapolated step.

    Attributes:
        epsilon: keeps the step finite when the mean update vanishes.
    """

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        check_number("FedExP", "epsilon", self.epsilon, above=0)

    def init(self) -> FedExPState:
        """The state before the first round."""
        return FedExPState()

    def aggregate(self, state: FedExPState, current: Round) -> tuple[Array, FedExPState]:
        """The next global model, (P,), and the step that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, W, p = current.global_model, current.client_models, current.shares
        average = checked(combine(p, W), current)
        along, squares = update_products(w, W, p)  # <g_k, mean update> and |g_k|^2
        mean_square = max(float(p @ along), 0.0)
        step = max(1.0, float(p @ squares) / (2 * (mean_square + self.epsilon)))
        subtract(average, w)
        model = checked(blend(1.0, w, step, average), current)
        return model, FedExPState(current.clients, p, step=step)

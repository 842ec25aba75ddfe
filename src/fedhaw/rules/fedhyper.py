"""FedHyper-G: one server step size, learnt from how consecutive updates agree.

    Delta(t) = (1/K) sum_k (w_k - w)                                   plain mean
    a(t)     = clip(a(t-1) + <Delta(t), Delta(t-1)>, lower, upper)     from the second round on
    w(t+1)   = w + (1 + a(t)) Delta(t)                                 a starts at 0

Wang, Kailkhura, Chen, Joshi, Zhang, "FedHyper: A Universal and Robust Learning Rate Scheduler for
Federated Learning with Hypergradient Descent", ICLR 2024.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, LastRound, Metrics, Needs, Round, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import blend, combine, dot, like, subtract, summing_to_one


@dataclass(frozen=True)
class FedHyperGState(LastRound):
    """The step size and the update it is compared with.

    Attributes:
        a: how far the server step departs from 1.
        delta: (P,) the last mean update; None before the first round.
        weights: (K,) 1/K each.
    """

    a: float = 0.0
    delta: Array | None = None

    @property
    def step(self) -> float:
        """The server step 1 + a."""
        return 1.0 + self.a

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"step": self.step}


@listed(__name__, "fedhyper", "FedHyper")
@dataclass(frozen=True)
class FedHyperG:
    """FedAvg with a learnt global step.

    Attributes:
        lower: the least `a`; above -1, or the server could step backwards.
        upper: the greatest `a`.
    """

    needs: ClassVar[Needs] = "sum"

    lower: float = -0.8
    upper: float = 4.0

    def __post_init__(self) -> None:
        check_number("FedHyperG", "lower", self.lower, above=-1, at_most=0)
        check_number("FedHyperG", "upper", self.upper, at_least=0)

    def init(self) -> FedHyperGState:
        """The state before the first round."""
        return FedHyperGState()

    @np.errstate(over="ignore")
    def aggregate(self, state: FedHyperGState, current: Round) -> tuple[Array, FedHyperGState]:
        """The next global model, (P,), and the step that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, W = current.global_model, current.client_models
        weights = np.full(len(current.clients), 1 / len(current.clients))
        delta = checked(combine(summing_to_one(weights, W), W), current)
        subtract(delta, w)
        a, note = state.a, None
        if state.delta is not None:
            agreement = dot(delta, like(delta, state.delta))
            if np.isfinite(agreement):
                a = float(np.clip(a + agreement, self.lower, self.upper))
            else:
                note = "the product of consecutive updates is not finite; the step stayed"
        model = checked(blend(1.0, w, 1 + a, delta), current)
        return model, FedHyperGState(current.clients, weights, note, a=a, delta=delta)

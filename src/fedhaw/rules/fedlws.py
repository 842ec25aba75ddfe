"""FedLWS: FedAvg, shrunk layer by layer where the clients disagree.

With what = sum_k (N_k/N) w_k, and per layer l the updates g_k,l = w_k,l - w_l,

    G_l     = sum_k (N_k/N) g_k,l                       weighted mean update
    tau_l   = mean_k |g_k,l - mean_j g_j,l|             how far apart the clients are
    gamma_l = |w_l| / (beta tau_l |G_l| + |w_l|)
    w_l(t+1) = gamma_l what_l

That is the form the FedHAW letter compares with, beta = 0.1. FedLWS's own authors keep the factor
in bounds, clip(beta tau_l, 0.01, 0.2) with beta = 0.03: `FedLWS(beta=0.03, clip=(0.01, 0.2))`.

Shi, Zhao, Guo, Chang, "FedLWS: Federated Learning with Adaptive Layer-wise Weight Shrinking",
ICLR 2025.
"""

from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import (
    Array,
    InvalidRound,
    InvalidRule,
    LastRound,
    Metrics,
    Round,
    Vector,
    check_number,
)
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import scale_layers, spread


@dataclass(frozen=True)
class FedLWSState(LastRound):
    """Nothing is remembered but what the last round did.

    Attributes:
        gammas: (L,) the factor each layer was shrunk by.
    """

    gammas: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"gamma": self.gammas} if len(self.gammas) else {}


@listed(__name__, "fedlws", "FedLWS")
@dataclass(frozen=True)
class FedLWS:
    """Layer-wise weight shrinking on top of FedAvg; needs `Round.layers`.

    Attributes:
        beta: strength of the shrinking; 0 is FedAvg.
        clip: bounds on beta tau_l, or None for none.
    """

    beta: float = 0.1
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_number("FedLWS", "beta", self.beta, at_least=0)
        if self.clip is None:
            return
        if not isinstance(self.clip, (tuple, list)) or len(self.clip) != 2:
            raise InvalidRule(f"FedLWS needs clip=(low, high) or None; got {self.clip!r}.")
        low, high = self.clip
        check_number("FedLWS", "clip[0]", low, at_least=0)
        check_number("FedLWS", "clip[1]", high, at_least=low)
        object.__setattr__(self, "clip", (low, high))

    def init(self) -> FedLWSState:
        """The state before the first round."""
        return FedLWSState()

    def aggregate(self, state: FedLWSState, current: Round) -> tuple[Array, FedLWSState]:
        """The next global model, (P,), and the factors that shrank it."""
        if current.layers is None:
            raise InvalidRound("FedLWS works layer by layer: give Round(..., layers=[slice, ...]).")
        if current.nothing_arrived:
            return unchanged(current), state
        w, W = current.global_model, current.client_models
        squares, mean_squares, distances, model = spread(w, W, current.shares, current.layers)
        if not np.isfinite(squares + mean_squares).all():
            checked(model, current)
        gammas, note = self._gammas(squares, mean_squares, distances)
        scale_layers(model, current.layers, gammas)
        return model, FedLWSState(current.clients, current.shares, note, gammas=gammas)

    @np.errstate(over="ignore", invalid="ignore")
    def _gammas(
        self, squares: Vector, mean_squares: Vector, distances: Vector
    ) -> tuple[Vector, str | None]:
        """(L,) the factor of each layer, and what there is to say of them."""
        length, G = np.sqrt(squares), np.sqrt(mean_squares)
        tau = np.sqrt(distances).mean(axis=1)
        factor = self.beta * tau
        if self.clip is not None:
            factor = np.clip(factor, *self.clip)
        # A layer of zeros has no length to keep: it is left to FedAvg.
        gammas: Vector = np.divide(
            length, factor * G + length, out=np.ones_like(length), where=length > 0
        )
        if np.all(np.isfinite(factor * G + length)):
            return gammas, None
        gammas[~np.isfinite(factor * G + length)] = 1.0
        return gammas, "updates of some layers are too long to measure; FedAvg's average stayed"

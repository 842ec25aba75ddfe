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

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedhaw.rules.base import Array, Client, InvalidRound, InvalidRule, Round, Vector, namespace
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.reductions import dot, update_products


@dataclass(frozen=True)
class FedLWSState:
    """Nothing is remembered but what the last round did.

    Attributes:
        gammas: (L,) the factor each layer was shrunk by.
        clients: who took part.
        weights: (K,) their shares of the data.
    """

    gammas: Vector = field(default_factory=lambda: np.zeros(0))
    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))


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
        if not 0 <= self.beta < float("inf"):
            raise InvalidRule(f"FedLWS needs a finite beta, 0 or more; got {self.beta}.")
        if self.clip is not None and not 0 <= self.clip[0] <= self.clip[1]:
            raise InvalidRule(f"FedLWS needs clip=(low, high), 0 <= low <= high; got {self.clip}.")

    def init(self) -> FedLWSState:
        """The state before the first round."""
        return FedLWSState()

    def aggregate(self, state: FedLWSState, round: Round) -> tuple[Array, FedLWSState]:  # noqa: A002
        """The next global model, (P,), and the factors that shrank it."""
        if round.layers is None:
            raise InvalidRound("FedLWS works layer by layer: give Round(..., layers=[slice, ...]).")
        if round.nothing_arrived:
            return unchanged(round), state
        gammas, model = self._gammas(round, round.layers)
        for layer, gamma in zip(round.layers, gammas, strict=True):
            model[layer] *= float(gamma)
        return model, FedLWSState(gammas, round.names, round.shares)

    def _gammas(self, round: Round, layers: Sequence[slice]) -> tuple[Vector, Array]:  # noqa: A002
        """(L,) the factor of each layer, and (P,) what they apply to: FedAvg's model."""
        w, W = round.global_model, round.client_models
        uniform = np.full(len(round.names), 1 / len(round.names))
        average = namespace(w).empty_like(w)
        products, squares = update_products(w, W, [round.shares, uniform], layers, average)
        checked(average, round)
        along_weighted, along_mean = products[:, 0], products[:, 1]
        G = np.sqrt(np.maximum(along_weighted @ round.shares, 0))
        # |g_k - mean|^2 = |g_k|^2 - 2 <g_k, mean> + |mean|^2
        mean_square = (along_mean @ uniform)[:, np.newaxis]
        tau = np.sqrt(np.maximum(squares - 2 * along_mean + mean_square, 0)).mean(axis=1)
        factor = self.beta * tau
        if self.clip is not None:
            factor = np.clip(factor, *self.clip)
        length = np.array([np.sqrt(dot(w[layer], w[layer])) for layer in layers])
        # A layer of zeros has no length to keep: it is left to FedAvg.
        gammas: Vector = np.divide(
            length, factor * G + length, out=np.ones_like(length), where=length > 0
        )
        return gammas, average

"""L-DAWA: layer by layer, clients count by their angle to the global model.

    w_l(t+1) = (1/n) sum_k cos(w_k,l, w_l) w_k,l          for each layer l

over the n clients of the round that have data, all alike. The cosines do not sum to n: where the
clients turn away from the global model the layer shrinks. A layer of zeros has no angle, so that
its cosine counts as 1. A lost upload holds the global model, at cosine 1.

Rehman, Gao, de Gusmao, Alibeigi, Shen, Lane, "L-DAWA: Layer-wise Divergence Aware Weight
Aggregation in Federated Self-Supervised Visual Representation Learning", ICCV 2023.
"""

from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, InvalidRound, LastRound, Metrics, Round, Vector
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine_layers, turns
from fedhaw.rules.updates import equal_weights


@dataclass(frozen=True)
class LDAWAState(LastRound):
    """Nothing is remembered but what the last round did.

    Attributes:
        cosines: (L,) the mean cosine of each layer.
        weights: (K,) 1/n for each client with data.
    """

    cosines: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name: the mean cosine of each layer."""
        return {"cosine": self.cosines} if len(self.cosines) else {}


@listed(__name__, "l-dawa", "L-DAWA")
@dataclass(frozen=True)
class LDAWA:
    """Layer-wise divergence-aware weights; needs `Round.layers`, has no hyper-parameters."""

    def init(self) -> LDAWAState:
        """The state before the first round."""
        return LDAWAState()

    @np.errstate(over="ignore", invalid="ignore")
    def aggregate(self, state: LDAWAState, current: Round) -> tuple[Array, LDAWAState]:
        """The next global model, (P,), and the cosines behind it."""
        if current.layers is None:
            raise InvalidRound("LDAWA works layer by layer: give Round(..., layers=[slice, ...]).")
        if current.nothing_arrived:
            return unchanged(current), state
        w, W = current.global_model, current.client_models
        weights = equal_weights(current.shares > 0)
        cosines = 1 - turns(w, W, current.layers)
        # What is too long for its square has no cosine that could be told.
        cosines = np.where(np.isfinite(cosines), cosines, 0.0)
        model = checked(combine_layers(weights * cosines, W, current.layers), current)
        return model, LDAWAState(current.clients, weights, cosines=cosines @ weights)

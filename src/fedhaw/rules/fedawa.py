"""FedAWA: weights that favour clients near the global model and near each other.

    Delta_k = w_k - w,     p = softmax(T)
    f(T)    = sum_k p_k (1 - cos(w, w_k)) + sum_k p_k |Delta_k - sum_j p_j Delta_j|
    T'      = T - step g / (|g| + 1e-8),     g = df/dT, element by element
    w(t+1)  = sum_k softmax(T')_k w_k

T_k starts at the client's share of the data, N_k / N, as in the authors' code: p is then nearly
equal for all that have data; those without have no weight. The step is the first one of an Adam
optimiser, fresh each round as theirs is, so that its betas (0.5, 0.999) cancel. Both sums follow
from the inner products of the updates. Those who are not asked in a round keep their T, and p is
normalised within the round.

A lost upload is a zero update at distance 0 from the global model, and its client keeps its weight.

Shi, Zhao, Zhang, Zhou, Guo, Chang, "FedAWA: Adaptive Optimization of Aggregation Weights in
Federated Learning Using Client Vectors", CVPR 2025.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Client, LastRound, Round, Vector, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import angular_distances, combine, gram, softmax

EPSILON = 1e-8


@dataclass(frozen=True)
class FedAWAState(LastRound):
    """The logit of every client.

    Attributes:
        logit_of: T of every client seen so far, by name.
        weights: (K,) softmax of the last round's logits.
    """

    logit_of: Mapping[Client, float] = field(default_factory=dict)


@listed(__name__, "fedawa", "FedAWA")
@dataclass(frozen=True)
class FedAWA:
    """FedAvg with weights that descend on the clients' distances.

    Attributes:
        step: how far a logit moves in a round.
    """

    step: float = 1e-3

    def __post_init__(self) -> None:
        check_number("FedAWA", "step", self.step, at_least=0)

    def init(self) -> FedAWAState:
        """The state before the first round."""
        return FedAWAState()

    def aggregate(self, state: FedAWAState, current: Round) -> tuple[Array, FedAWAState]:
        """The next global model, (P,), and the logits that weighed it."""
        if current.nothing_arrived:
            return unchanged(current), state
        start = dict(zip(current.clients, current.shares.tolist(), strict=True))
        with_data = current.shares > 0
        logits = [state.logit_of.get(client, share) for client, share in start.items()]
        T = np.where(with_data, logits, -np.inf)
        g, note = _gradient(softmax(T), *gram(current.global_model, current.client_models)), None
        if np.isfinite(g).all():
            T = T - self.step * g / (np.abs(g) + EPSILON)
        else:
            note = "an update is too long to measure; the weights stayed"
        weights = softmax(T)
        model = checked(combine(weights, current.client_models), current)
        learnt = zip(current.clients, T.tolist(), with_data, strict=True)
        known = {client: logit for client, logit, here in learnt if here}
        return model, FedAWAState(
            current.clients, weights, note, logit_of={**state.logit_of, **known}
        )


@np.errstate(over="ignore", invalid="ignore")
def _gradient(p: Vector, inner: Vector, along: Vector, square: float) -> Vector:
    """(K,) df/dT, from <Delta_j, Delta_k>, <Delta_k, w> and |w|^2."""
    squares, to_mean = np.diag(inner), inner @ p  # |Delta_k|^2 and <Delta_k, mean>
    distances = np.sqrt(np.maximum(squares - 2 * to_mean + p @ to_mean, 0.0))
    # d|Delta_k - mean| / dp_m = <mean - Delta_k, Delta_m> / |Delta_k - mean|, 0 at the mean itself
    pull = np.divide(p, distances, out=np.zeros_like(p), where=distances > 0)
    df_dp = angular_distances(squares, along, square) + distances
    df_dp += pull.sum() * to_mean - pull @ inner
    gradient: Vector = p * (df_dp - p @ df_dp)
    return gradient

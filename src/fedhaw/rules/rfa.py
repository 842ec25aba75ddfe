"""RFA: the geometric median of the client models, the point with the least sum of distances.

    w(t+1) = argmin_v sum_{k in S} p_k |v - w_k|        S: the clients that arrived, p_k ~ N_k

by Weiszfeld's algorithm, smoothed by nu, from the weighted mean on:

    v      = sum_k q_k w_k                              q starts at p
    q_k'   = (p_k / max(nu, |v - w_k|)) / sum_j (p_j / max(nu, |v - w_j|))

Every v is a weighted mean of models, so that all its distances follow from the inner products of
the updates: the matrix is read twice, however many passes are made. Bad clients with less than half
of the data can move the result only so far. A lost upload is left out; when nobody with data
arrived, the model and the state stay.

Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE TSP 2022.
"""

from dataclasses import dataclass

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Round, Vector, check_number
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine, gram
from fedhaw.rules.updates import voters


@listed(__name__, "rfa", "RFA")
@dataclass(frozen=True)
class RFA:
    """The smoothed geometric median of the client models, weighted by data.

    Attributes:
        nu: the distance below which a client's pull no longer grows, in the unit of the model.
        passes: how often the weights are renewed.
    """

    nu: float = 1e-6
    passes: int = 4

    def __post_init__(self) -> None:
        check_number("RFA", "nu", self.nu, above=0)
        check_number("RFA", "passes", self.passes, at_least=1, whole=True)

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and the weights q that formed it."""
        senders = voters(current)
        if not senders.any():
            return unchanged(current), state
        p = current.shares * senders
        p /= p.sum()
        inner, _, _ = gram(current.global_model, current.client_models)
        weights = self._weights(p, inner)
        model = checked(combine(weights, current.client_models), current)
        return model, FedAvgState(current.clients, weights)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _weights(self, p: Vector, inner: Vector) -> Vector:
        """(K,) q after all passes; a client too far to measure has none."""
        measured = np.isfinite(np.diag(inner))
        inner = np.where(measured & measured[:, None], inner, 0.0)
        start = p * measured
        if not start.any():
            return p
        start /= start.sum()
        q: Vector = start
        for _ in range(self.passes):
            to_mean = inner @ q  # <Delta_k, sum_j q_j Delta_j>
            squares = np.diag(inner) - 2 * to_mean + q @ to_mean  # |w_k - v|^2
            pull = start / np.maximum(self.nu, np.sqrt(np.maximum(squares, 0.0)))
            q = pull / pull.sum()
        return q

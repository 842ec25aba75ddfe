"""Krum and multi-Krum: only the models that lie closest together are used.

    s_k    = sum of |w_k - w_j|^2 over the n - f - 2 nearest j          n: clients that arrived
    w(t+1) = the model of the client with the least s_k                 Krum
             the plain mean of the m models with the least s_k          multi-Krum

f is how many clients may be bad; the theory asks for n >= 2 f + 3. When fewer arrive, at least one
neighbour is asked, and when fewer than m do, all are used. Among equals the client with more data
comes first. A lost upload and a client without data are neither chosen nor neighbours; when nobody
is left, the model and the state stay.

All distances follow from the inner products of the updates.

Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent", NeurIPS 2017.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Round, Vector, check_number
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine, gram
from fedhaw.rules.updates import equal_weights, voters


@listed(__name__, "krum", "Krum")
@dataclass(frozen=True)
class Krum:
    """The one client model that lies nearest to its neighbours.

    Attributes:
        f: how many clients may be bad.
    """

    f: int = 1

    def __post_init__(self) -> None:
        check_number("Krum", "f", self.f, at_least=0, whole=True)

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and weight 1 for the client it is from."""
        return _select(state, current, self.f, 1)


@listed(__name__, "multi-krum", "Multi-Krum")
@dataclass(frozen=True)
class MultiKrum:
    """The mean of the client models that lie nearest to their neighbours.

    Attributes:
        f: how many clients may be bad.
        m: how many models are averaged; None for all that arrived but f.
    """

    f: int = 1
    m: int | None = None

    def __post_init__(self) -> None:
        check_number("MultiKrum", "f", self.f, at_least=0, whole=True)
        if self.m is not None:
            check_number("MultiKrum", "m", self.m, at_least=1, whole=True)

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and equal weights for the clients it is from."""
        return _select(state, current, self.f, self.m)


def _select(state: FedAvgState, current: Round, f: int, m: int | None) -> tuple[Array, FedAvgState]:
    who = np.flatnonzero(voters(current))
    if not len(who):
        return unchanged(current), state
    W, n = current.client_models, len(who)
    inner, _, _ = gram(current.global_model, W)
    scores = _scores(inner[np.ix_(who, who)], n - f - 2)
    ranking = np.lexsort((-current.shares[who], scores))
    chosen: NDArray[np.bool_] = np.zeros(len(W), dtype=np.bool_)
    chosen[who[ranking[: max(n - f, 1) if m is None else m]]] = True
    weights = equal_weights(chosen)
    # A model that is not finite makes the sum so even at weight 0, and is named.
    return checked(combine(weights, W), current), FedAvgState(current.clients, weights)


@np.errstate(over="ignore", invalid="ignore")
def _scores(inner: Vector, neighbours: int) -> Vector:
    """(n,) each client's squared distances to its nearest neighbours, added up."""
    squares = np.diag(inner)
    distances = squares[:, None] + squares - inner - inner.T
    # What is too long to measure is far from everybody.
    distances = np.where(np.isfinite(distances), np.maximum(distances, 0.0), np.inf)
    np.fill_diagonal(distances, 0.0)
    scores: Vector = np.sort(distances, axis=1)[:, 1 : max(neighbours, 1) + 1].sum(axis=1)
    return scores

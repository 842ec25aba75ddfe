"""Trimmed mean: of every parameter the mean without the smallest and the largest values.

    w(t+1)_p = mean of (w_k)_p over k in S, without the floor(beta n) smallest and largest

S are the n clients that arrived and have data. Every client counts alike, whatever its data, so
that a share beta of them may send anything. A lost upload has no vote; when nobody has one, the
model and the state stay.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Round, check_number
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine
from fedhaw.rules.ranks import mean_of_ranks
from fedhaw.rules.updates import equal_weights, voters


@listed(__name__, "trimmed-mean", "Trimmed mean")
@dataclass(frozen=True)
class TrimmedMean:
    """The mean of the client models without the extremes, parameter by parameter.

    Attributes:
        beta: the share that is left out at either end; 0 is the plain mean.
    """

    beta: float = 0.2

    def __post_init__(self) -> None:
        check_number("TrimmedMean", "beta", self.beta, at_least=0, below=0.5)

    def init(self) -> FedAvgState:
        """The state before the first round."""
        return FedAvgState()

    def aggregate(self, state: FedAvgState, current: Round) -> tuple[Array, FedAvgState]:
        """The next global model, (P,), and the votes that formed it."""
        return trimmed(state, current, lambda n: int(self.beta * n))


def trimmed(
    state: FedAvgState, current: Round, cut: Callable[[int], int]
) -> tuple[Array, FedAvgState]:
    """The mean without the `cut(n)` smallest and largest of n values, and the votes for it."""
    who = voters(current)
    if not who.any():
        return unchanged(current), state
    W, rows = current.client_models, np.flatnonzero(who).tolist()
    # Trimming may hide what is not finite: look for it in a sum first.
    checked(combine(current.shares, W), current)
    n = len(rows)
    model = mean_of_ranks(W, rows, cut(n), n - cut(n))
    return model, FedAvgState(current.clients, equal_weights(who))

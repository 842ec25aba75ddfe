"""FedAdp: clients count more, the better their update agrees with everybody's.

    g_k     = (w - w_k) / eta,   g = sum_k (N_k/N) g_k
    theta_k = arccos(<g_k, g> / (|g_k| |g|)),   averaged over all rounds so far
    f       = alpha (1 - exp(-exp(-alpha (theta_k - 1))))
    w(t+1)  = sum_k psi_k w_k,   psi_k proportional to N_k exp(f(theta_k))

Angles do not change when all updates are scaled, so eta is not needed. A lost upload is a zero
update, at a right angle to everything. The average angle belongs to the client: one that was not
asked in a round keeps the average of the rounds it took part in.

Wu and Wang, "Fast-Convergent Federated Learning with Adaptive Weighting", IEEE TCCN 2021.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, Client, LastRound, Round, Vector, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine, softmax, update_products

NEARLY_PARALLEL = 0.9999
"""Beyond this cosine, angles below 0.014, the arc cosine of float32 sums has lost its digits."""


@dataclass(frozen=True)
class FedAdpState(LastRound):
    """The average angle of every client seen so far.

    Attributes:
        angle_sums: per client, the sum of its angles, in radians.
        rounds_seen: per client, how many angles are in that sum.
        weights: (K,) psi_k of the last round's clients.
    """

    angle_sums: Mapping[Client, float] = field(default_factory=dict)
    rounds_seen: Mapping[Client, float] = field(default_factory=dict)

    @property
    def angles(self) -> Vector:
        """(K,) the average angles of the last round's clients."""
        return np.array([self.angle_sums[c] / self.rounds_seen[c] for c in self.clients])


@listed(__name__, "fedadp", "FedAdp")
@dataclass(frozen=True)
class FedAdp:
    """FedAvg reweighted by the angle between a client's update and the mean update.

    Attributes:
        alpha: how sharply agreement is rewarded; the authors use 5.
    """

    alpha: float = 5.0

    def __post_init__(self) -> None:
        check_number("FedAdp", "alpha", self.alpha, at_least=0)

    def init(self) -> FedAdpState:
        """The state before the first round."""
        return FedAdpState()

    def aggregate(self, state: FedAdpState, current: Round) -> tuple[Array, FedAdpState]:
        """The next global model, (P,), and the average angles behind it."""
        if current.nothing_arrived:
            return unchanged(current), state
        sums, seen = dict(state.angle_sums), dict(state.rounds_seen)
        for client, angle in zip(current.clients, self._angles(current), strict=True):
            sums[client] = sums.get(client, 0.0) + float(angle)
            seen[client] = seen.get(client, 0.0) + 1
        mean_angles = np.array([sums[client] / seen[client] for client in current.clients])
        f = self.alpha * (1 - np.exp(-np.exp(-self.alpha * (mean_angles - 1))))
        with np.errstate(divide="ignore"):
            weights = softmax(np.log(current.shares) + f)
        model = checked(combine(weights, current.client_models), current)
        return model, FedAdpState(current.clients, weights, angle_sums=sums, rounds_seen=seen)

    @staticmethod
    @np.errstate(over="ignore", invalid="ignore")
    def _angles(current: Round) -> Vector:
        """(K,) radians; a right angle for an update that is 0 or too long to measure."""
        w, W, shares = current.global_model, current.client_models, current.shares
        along, squares = update_products(w, W, shares)
        mean_square = max(float(shares @ along), 0.0)
        scale = np.sqrt(squares * mean_square)
        cosines = np.divide(along, scale, out=np.zeros_like(scale), where=scale > 0)
        cosines = np.clip(np.nan_to_num(cosines, nan=0.0), -1.0, 1.0)
        angles: Vector = np.arccos(cosines)
        nearly_parallel = np.abs(cosines) > NEARLY_PARALLEL
        if nearly_parallel.any():
            # The arc cosine has lost its digits there: measure what is left beside the mean.
            _, beside = update_products(w, W, shares, along / mean_square)
            sines = np.sqrt(beside[nearly_parallel] / squares[nearly_parallel])
            angles[nearly_parallel] = np.arctan2(sines, cosines[nearly_parallel])
        return angles

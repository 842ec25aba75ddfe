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

from fedhaw.rules.base import Array, Client, InvalidRule, Round, Vector
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.reductions import combine, softmax, update_products


@dataclass(frozen=True)
class FedAdpState:
    """The average angle of every client seen so far.

    Attributes:
        angle_sums: per client, the sum of its angles, in radians.
        rounds_seen: per client, how many angles are in that sum.
        clients: who took part in the last round.
        weights: (K,) their weights psi_k.
    """

    angle_sums: Mapping[Client, float] = field(default_factory=dict)
    rounds_seen: Mapping[Client, float] = field(default_factory=dict)
    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def angles(self) -> Vector:
        """(K,) the average angles of the last round's clients."""
        return np.array([self.angle_sums[c] / self.rounds_seen[c] for c in self.clients])


@dataclass(frozen=True)
class FedAdp:
    """FedAvg reweighted by the angle between a client's update and the mean update.

    Attributes:
        alpha: how sharply agreement is rewarded; the authors use 5.
    """

    alpha: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise InvalidRule(f"FedAdp needs a finite alpha, 0 or more; got {self.alpha}.")

    def init(self) -> FedAdpState:
        """The state before the first round."""
        return FedAdpState()

    def aggregate(self, state: FedAdpState, round: Round) -> tuple[Array, FedAdpState]:  # noqa: A002
        """The next global model, (P,), and the average angles behind it."""
        if round.nothing_arrived:
            return unchanged(round), state
        sums, seen = dict(state.angle_sums), dict(state.rounds_seen)
        for client, angle in zip(round.names, self._angles(round), strict=True):
            sums[client] = sums.get(client, 0.0) + float(angle)
            seen[client] = seen.get(client, 0.0) + 1
        mean_angles = np.array([sums[client] / seen[client] for client in round.names])
        f = self.alpha * (1 - np.exp(-np.exp(-self.alpha * (mean_angles - 1))))
        with np.errstate(divide="ignore"):
            weights = softmax(np.log(round.shares) + f)
        model = checked(combine(weights, round.client_models), round)
        return model, FedAdpState(sums, seen, round.names, weights)

    @staticmethod
    def _angles(round: Round) -> Vector:  # noqa: A002
        whole_model = [slice(0, round.global_model.shape[0])]
        products, squares = update_products(
            round.global_model, round.client_models, [round.shares], whole_model
        )
        along_mean, lengths = products[0, 0], np.sqrt(squares[0])
        mean_length = np.sqrt(max(float(round.shares @ along_mean), 0.0))
        scale = lengths * mean_length
        cosines = np.divide(along_mean, scale, out=np.zeros_like(scale), where=scale > 0)
        angles: Vector = np.arccos(np.clip(cosines, -1.0, 1.0))
        return angles

"""FedAdagrad, FedAdam and FedYogi: a server step of its own length for every parameter.

    Delta  = sum_k p_k (w_k - w),     p_k = N_k / N
    m'     = beta_1 m + (1 - beta_1) Delta                             m starts at 0
    v'     = v + Delta^2                                               FedAdagrad
             beta_2 v + (1 - beta_2) Delta^2                           FedAdam
             v - (1 - beta_2) Delta^2 sign(v - Delta^2)                FedYogi
    w(t+1) = w + eta_s m' / (sqrt(v') + tau)                           v starts at tau^2

All operations are element by element, without bias correction. FedAdagrad has beta_1 = 0. A lost
upload is a zero update, and the client keeps its weight.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated Optimization",
ICLR 2021.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import Array, LastRound, Needs, Round, check_number, namespace
from fedhaw.rules.blocks import each, vector_blocks
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes import like, native
from fedhaw.rules.updates import mean_update


@dataclass(frozen=True)
class AdaptiveState(LastRound):
    """The two moments of the mean update.

    Attributes:
        m: (P,) the fading mean of the updates; None before the first round.
        v: (P,) what became of their squares; None before the first round.
    """

    m: Array | None = None
    v: Array | None = None


class Adaptive(Protocol):
    """What the three rules share: everything but how the squares are taken in."""

    needs: ClassVar[Needs] = "sum"

    @property
    def eta_s(self) -> float:
        """The server's step."""

    @property
    def beta_1(self) -> float:
        """How much of the mean update stays from round to round."""
        return 0.0

    @property
    def tau(self) -> float:
        """What keeps steps finite where little has moved."""

    def second_moment(self, v: Array, square: Array) -> Array:
        """The new v, of v and Delta^2, a block of parameters at a time."""

    def __post_init__(self) -> None:
        rule = type(self).__name__
        check_number(rule, "eta_s", self.eta_s, above=0)
        check_number(rule, "tau", self.tau, above=0)
        check_number(rule, "beta_1", self.beta_1, at_least=0, below=1)
        check_number(rule, "beta_2", getattr(self, "beta_2", 0.0), at_least=0, below=1)

    def init(self) -> AdaptiveState:
        """The state before the first round."""
        return AdaptiveState()

    def aggregate(self, state: AdaptiveState, current: Round) -> tuple[Array, AdaptiveState]:
        """The next global model, (P,), and the moments that scaled its step."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, delta = native(current.global_model), native(mean_update(current, current.shares))
        before_m, before_v = _begun(w, state.m, 0.0), _begun(w, state.v, self.tau**2)
        made = [vector_like(current.global_model) for _ in range(3)]
        m, v, model = map(native, made)

        def part(block: slice) -> None:
            m[block] = self.beta_1 * before_m[block] + (1 - self.beta_1) * delta[block]
            v[block] = self.second_moment(before_v[block], delta[block] * delta[block])
            root = namespace(w).sqrt(v[block])
            model[block] = w[block] + self.eta_s * m[block] / (root + self.tau)

        each(w, part, vector_blocks(w))
        m, v, model = made
        return checked(model, current), AdaptiveState(current.clients, current.shares, m=m, v=v)


def _begun(w: Array, moment: Array | None, start: float) -> Array:
    """(P,) a moment where w lies; before the first round its start, which is not stored."""
    if moment is None:
        return namespace(w).broadcast_to(like(w, np.full(1, start)), w.shape)
    return like(w, moment)


@listed(__name__, "fedadagrad", "FedAdagrad")
@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """Steps that shorten where a parameter has moved much in all rounds so far.

    Attributes:
        eta_s: the server's step.
        tau: what keeps steps finite where little has moved; updates much shorter count for less.
    """

    eta_s: float = 0.1
    tau: float = 1e-3

    def second_moment(self, v: Array, square: Array) -> Array:
        """The sum of all squares."""
        return v + square


@listed(__name__, "fedadam", "FedAdam")
@dataclass(frozen=True)
class FedAdam(Adaptive):
    """Steps that shorten where a parameter has moved much of late.

    Attributes:
        eta_s: the server's step.
        beta_1: how much of the mean update stays from round to round.
        beta_2: how much of the mean square stays.
        tau: what keeps steps finite where little has moved; updates much shorter count for less.
    """

    eta_s: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def second_moment(self, v: Array, square: Array) -> Array:
        """The fading mean of the squares."""
        return self.beta_2 * v + (1 - self.beta_2) * square


@listed(__name__, "fedyogi", "FedYogi")
@dataclass(frozen=True)
class FedYogi(Adaptive):
    """FedAdam whose steps grow back only slowly after a large update.

    Attributes:
        eta_s: the server's step.
        beta_1: how much of the mean update stays from round to round.
        beta_2: how little of a new square is taken in.
        tau: what keeps steps finite where little has moved; updates much shorter count for less.
    """

    eta_s: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def second_moment(self, v: Array, square: Array) -> Array:
        """v, moved towards the new square by a part of it."""
        return v - (1 - self.beta_2) * square * namespace(square).sign(v - square)

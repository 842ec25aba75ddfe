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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import numpy as np

from fedhaw.rules.base import Array, Client, Metrics, Needs, Round, Vector, check_number, namespace
from fedhaw.rules.blocks import each, vector_blocks
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes import like
from fedhaw.rules.updates import mean_update

SecondMoment: TypeAlias = Callable[[Array, Array], Array]
"""v and Delta^2 -> v', a block of parameters at a time."""


@dataclass(frozen=True)
class AdaptiveState:
    """The two moments of the mean update.

    Attributes:
        m: (P,) the fading mean of the updates; None before the first round.
        v: (P,) what became of their squares; None before the first round.
        clients: who took part in the last round.
        weights: (K,) their shares of the data.
    """

    m: Array | None = None
    v: Array | None = None
    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {}


@dataclass(frozen=True)
class FedAdagrad:
    """Steps that shorten where a parameter has moved much in all rounds so far.

    Attributes:
        eta_s: the server's step.
        tau: what keeps steps finite where little has moved; updates much shorter count for less.
    """

    needs: ClassVar[Needs] = "sum"

    eta_s: float = 0.1
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check("FedAdagrad", self.eta_s, self.tau)

    def init(self) -> AdaptiveState:
        """The state before the first round."""
        return AdaptiveState()

    def aggregate(self, state: AdaptiveState, current: Round) -> tuple[Array, AdaptiveState]:
        """The next global model, (P,), and the moments that scaled its step."""
        return _step(state, current, self.eta_s, 0.0, self.tau, lambda v, square: v + square)


@dataclass(frozen=True)
class FedAdam:
    """Steps that shorten where a parameter has moved much of late.

    Attributes:
        eta_s: the server's step.
        beta_1: how much of the mean update stays from round to round.
        beta_2: how much of the mean square stays.
        tau: what keeps steps finite where little has moved; updates much shorter count for less.
    """

    needs: ClassVar[Needs] = "sum"

    eta_s: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check("FedAdam", self.eta_s, self.tau, self.beta_1, self.beta_2)

    def init(self) -> AdaptiveState:
        """The state before the first round."""
        return AdaptiveState()

    def aggregate(self, state: AdaptiveState, current: Round) -> tuple[Array, AdaptiveState]:
        """The next global model, (P,), and the moments that scaled its step."""

        def second(v: Array, square: Array) -> Array:
            return self.beta_2 * v + (1 - self.beta_2) * square

        return _step(state, current, self.eta_s, self.beta_1, self.tau, second)


@dataclass(frozen=True)
class FedYogi:
    """FedAdam whose steps grow back only slowly after a large update.

    Attributes:
        eta_s: the server's step.
        beta_1: how much of the mean update stays from round to round.
        beta_2: how little of a new square is taken in.
        tau: what keeps steps finite where little has moved; updates much shorter count for less.
    """

    needs: ClassVar[Needs] = "sum"

    eta_s: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check("FedYogi", self.eta_s, self.tau, self.beta_1, self.beta_2)

    def init(self) -> AdaptiveState:
        """The state before the first round."""
        return AdaptiveState()

    def aggregate(self, state: AdaptiveState, current: Round) -> tuple[Array, AdaptiveState]:
        """The next global model, (P,), and the moments that scaled its step."""

        def second(v: Array, square: Array) -> Array:
            return v - (1 - self.beta_2) * square * namespace(square).sign(v - square)

        return _step(state, current, self.eta_s, self.beta_1, self.tau, second)


def _check(rule: str, eta_s: float, tau: float, beta_1: float = 0.0, beta_2: float = 0.0) -> None:
    check_number(rule, "eta_s", eta_s, above=0)
    check_number(rule, "tau", tau, above=0)
    check_number(rule, "beta_1", beta_1, at_least=0, below=1)
    check_number(rule, "beta_2", beta_2, at_least=0, below=1)


def _step(
    state: AdaptiveState,
    current: Round,
    eta_s: float,
    beta_1: float,
    tau: float,
    second: SecondMoment,
) -> tuple[Array, AdaptiveState]:
    if current.nothing_arrived:
        return unchanged(current), state
    w, xp = current.global_model, namespace(current.global_model)
    delta = mean_update(current, current.shares)
    # 0 and tau^2, not stored.
    before_m = xp.broadcast_to(like(w, np.zeros(1)), w.shape) if state.m is None else state.m
    before_v = xp.broadcast_to(like(w, np.full(1, tau**2)), w.shape) if state.v is None else state.v
    before_m, before_v = like(w, before_m), like(w, before_v)
    m, v, model = vector_like(w), vector_like(w), vector_like(w)

    def part(block: slice) -> None:
        m[block] = beta_1 * before_m[block] + (1 - beta_1) * delta[block]
        v[block] = second(before_v[block], delta[block] * delta[block])
        model[block] = w[block] + eta_s * m[block] / (xp.sqrt(v[block]) + tau)

    each(w, part, vector_blocks(w))
    return checked(model, current), AdaptiveState(m, v, current.clients, current.shares)

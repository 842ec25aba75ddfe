"""FedHAW: aggregation weights learnt online from hypergradients.

The global model is exp(gamma) sum_k softmax(lambda)_k w_k. Each round t > 0, before aggregating,
gamma and lambda take one gradient step on the loss at the model w they produced a round ago. With
s = softmax(lambda), and u_k = w_k(t-1) the models w was made of (Algorithm 1 of the letter):

    d         = w - sum_j s_j w_j                                          line 8
    gamma'    = gamma - eta_gamma exp(gamma) / eta <d, w>                  line 9
    lambda_k' = lambda_k - eta_lambda exp(2 gamma) / eta
                           s_k (1 - s_k) <d, u_k>                          line 10
    w(t+1)    = exp(gamma') sum_k softmax(lambda')_k w_k                   line 12

exp(gamma) d / eta stands for the gradient at w, so no proxy data and no further message is needed,
and any client update will do. Round 0 only aggregates: with lambda_k = log(N_k / N) it is FedAvg.

`FedHAW.aggregate` has these lines in this order. What a guard leaves of a step is said in
`stretch.py`, where newcomers begin in `logits.py`, and how d is had without storing it, and to
which digit, in `passes`.

Clients are known by name. When only some take part, w was made by the previous cohort with the
weights it had then, so line 10 goes to those clients with those weights; lines 8 and 12 use the
present cohort, its weights normalised within it. With everybody present this is Algorithm 1.

Nakai-Kasai and Wadayama, "Federated Learning with Hypergradient-based Online Update of Aggregation
Weights".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import array_api_compat
import ml_dtypes
import numpy as np
from numpy import exp

from fedhaw.listing import listed
from fedhaw.rules.base import (
    Array,
    Client,
    InvalidRule,
    LastRound,
    Metrics,
    Round,
    Vector,
    check_number,
    namespace,
)
from fedhaw.rules.blocks import quietly
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.logits import Logits, bare_shares, log_shares, with_newcomers
from fedhaw.rules.passes import astype, combine, direction, like, softmax
from fedhaw.rules.stretch import Step, check_limit, guarded, trained_length

ROUNDING = (3e-7, 1e-5)
"""How far rounding may move gamma and lambda in one step. gamma scales the model, of which float32
resolves 6e-8; lambda only shifts weight between models that are nearly the same."""

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class FedHAWState(LastRound):
    """The coefficients, and what made the current global model.

    Attributes:
        gamma: log of the sum of the weights.
        lambda_of: the logit of every client seen so far, by name.
        trained_length: the length that training accounts for, beside which the guard measures the
            model; 0 before it is known.
        weights: (K,) softmax of the logits: the relative weights the last model was made with.
        previous: (K, P) the clients' models as the server used them; None before the first round
            and when lambda is not learnt.
        rounds: how many rounds were aggregated.
    """

    gamma: float = 0.0
    lambda_of: Mapping[Client, float] = field(default_factory=dict)
    trained_length: float = 0.0
    previous: Array | None = None
    rounds: int = 0

    @property
    def lambdas(self) -> Vector:
        """(K,) the logits of the last round's clients."""
        return Logits(self.lambda_of).at(self.clients)

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"gamma": self.gamma}


@listed(__name__, "fedhaw", "FedHAW")
@dataclass(frozen=True)
class FedHAW:
    """Hypergradient-based aggregation weights.

    Attributes:
        eta: the clients' learning rate, a constant of the run.
        eta_gamma: meta learning rate of gamma; the letter uses 1e-3 (MNIST, SGD), 1e-5 (CIFAR-10,
            SGD) and 1e-7 (Stanford Dogs, Adam), and 1e-4 for MNIST once uploads get lost.
        eta_lambda: meta learning rate of lambda; the letter uses 1e-2, 1e-2 and 1e-5. With both at
            0 the rule is FedAvg, when start is "share".
        start: where lambda_k begins. "share": at log(N_k / N), so that the first aggregation is
            FedAvg's, as in the authors' code. "literal": at N_k / N, as the letter is printed.
        gamma_in_lambda_step: which gamma line 10 uses. "simultaneous": the old one, as in
            Algorithm 1. "sequential": the new one, as in the authors' code.
        jacobian: of the softmax in line 10. "diagonal": s_k (1 - s_k) u_k, as in the letter.
            "full": the exact s_k (u_k - sum_j s_j u_j).
        learn: "both" coefficients, "gamma" only (then no models are kept), or "lambda" only.
        history_dtype: dtype in which the previous models are kept. None: the matrix given in the
            round is kept as it is, without a copy. "bfloat16" or "float16": a copy of half the
            size.
        guard: how many times longer, or shorter, than its training accounts for gamma may make the
            model; above 1. A step that is not finite, or would double or halve the model in one
            round, is not taken. None: the letter's rule as printed, whatever happens.
    """

    of_the_sum: ClassVar[str] = "learns the scaling gamma; all clients weigh alike"

    eta: float
    eta_gamma: float
    eta_lambda: float
    start: Literal["share", "literal"] = "share"
    gamma_in_lambda_step: Literal["simultaneous", "sequential"] = "simultaneous"
    jacobian: Literal["diagonal", "full"] = "diagonal"
    learn: Literal["both", "gamma", "lambda"] = "both"
    history_dtype: Literal["bfloat16", "float16"] | None = None
    guard: float | None = 5.0

    def __post_init__(self) -> None:
        check_number("FedHAW", "eta", self.eta, above=0)
        check_number("FedHAW", "eta_gamma", self.eta_gamma, at_least=0)
        check_number("FedHAW", "eta_lambda", self.eta_lambda, at_least=0)
        check_limit("FedHAW", self.guard)
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                options = ", ".join(repr(option) for option in known)
                raise InvalidRule(
                    f"FedHAW's {name} must be one of {options}; got {getattr(self, name)!r}."
                )

    def init(self) -> FedHAWState:
        """The state before the first round: gamma = 0, and no client known yet."""
        return FedHAWState()

    @quietly
    def aggregate(self, state: FedHAWState, current: Round) -> tuple[Array, FedHAWState]:
        """The next global model, (P,), and the coefficients that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, W, U = current.global_model, current.client_models, _previous(state, current)
        now, then, s = current.clients, state.clients, state.weights
        gamma, logits = state.gamma, self._with_newcomers(state, current)
        trained, note = state.trained_length, None

        if state.rounds > 0:
            eta, (eta_gamma, eta_lambda) = self.eta, self._rates
            g, lam = gamma, logits.at(then)
            d = direction(w, W, softmax(logits.at(now)), U, self._tolerance(g))  # line 8
            gamma = g - eta_gamma * exp(g) / eta * d.dot_w  # line 9
            g = gamma if self.gamma_in_lambda_step == "sequential" else g
            lam = lam - eta_lambda * exp(2 * g) / eta * self._slope(s, d.dot_u)  # line 10
            trained = trained_length(trained, d.w_length, d.average_length)
            if self.guard is not None:
                step = Step(state.gamma, gamma, logits.at(then), lam)
                gamma, lam, note = guarded(step, self.guard, trained, d.average_length)
            logits = logits.set(then, lam)

        weights = softmax(logits.at(now))
        model = combine(exp(gamma) * weights, W)  # line 12
        return checked(model, current), FedHAWState(
            gamma=float(gamma),
            lambda_of=logits.of,
            trained_length=trained,
            clients=now,
            weights=weights,
            previous=self._kept(W),
            rounds=state.rounds + 1,
            note=note,
        )

    @property
    def _rates(self) -> tuple[float, float]:
        """The meta learning rates of gamma and lambda; 0 for what is not learnt."""
        return (
            0.0 if self.learn == "lambda" else self.eta_gamma,
            0.0 if self.learn == "gamma" else self.eta_lambda,
        )

    def _slope(self, s: Vector, dot_u: Vector) -> Vector:
        """(K,) <d, dw/dlambda_k>, but for exp(gamma)."""
        full = self.jacobian == "full"
        slope: Vector = s * (dot_u - (s * dot_u).sum()) if full else s * (1 - s) * dot_u
        return slope

    def _tolerance(self, gamma: float) -> float:
        """How far off the inner products with d may be for steps within ROUNDING."""
        scales = float(exp(gamma)), float(exp(2 * gamma)) / 4
        return min(
            rounding * self.eta / max(rate * scale, TINY)
            for rounding, rate, scale in zip(ROUNDING, self._rates, scales, strict=True)
        )

    def _with_newcomers(self, state: FedHAWState, current: Round) -> Logits:
        """The logits of all clients, with those who join at their share of this round's data."""
        joining = log_shares if self.start == "share" else bare_shares
        logits = Logits(state.lambda_of)
        known = logits.at(current.clients)
        begun = with_newcomers("lambda", known, current.shares, joining)
        return logits if begun is known else logits.set(current.clients, begun)

    def _kept(self, W: Array) -> Array | None:
        if self.learn == "gamma":
            return None
        if self.history_dtype is None:
            return W
        if array_api_compat.is_numpy_array(W):
            return W.astype(getattr(ml_dtypes, self.history_dtype, self.history_dtype))
        return astype(W, getattr(namespace(W), self.history_dtype))


_CHOICES: dict[str, tuple[object, ...]] = {
    "start": ("share", "literal"),
    "gamma_in_lambda_step": ("simultaneous", "sequential"),
    "jacobian": ("diagonal", "full"),
    "learn": ("both", "gamma", "lambda"),
    "history_dtype": (None, "bfloat16", "float16"),
}


def _previous(state: FedHAWState, current: Round) -> Array | None:
    """(J, P) the models w was made of, where the round's lie; None if they were not kept."""
    if state.previous is None:
        return None
    return like(current.client_models, state.previous, keep_dtype=True)

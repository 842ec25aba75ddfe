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

Clients are known by name. When only some take part, w was made by the previous cohort with the
weights it had then, so line 10 goes to those clients with those weights; lines 8 and 12 use the
present cohort, its weights normalised within it. With everybody present this is Algorithm 1.

Nakai-Kasai and Wadayama, "Federated Learning with Hypergradient-based Online Update of Aggregation
Weights".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import array_api_compat
import ml_dtypes
import numpy as np

from fedhaw.rules.base import (
    Array,
    Client,
    InvalidRule,
    Metrics,
    Round,
    Vector,
    check_number,
    namespace,
)
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.reductions import astype, combine, direction_products, like, softmax

GAMMA_LIMIT = float(np.log(2.0))
"""A step to |gamma| beyond this, exp(gamma) outside [0.5, 2], is not taken; in the letter's
experiments exp(gamma) stays within [0.7, 1.7]."""

SCALING_LIMIT = float(np.log(10.0))
"""gamma acts in every round, so even a small one that is held destroys a model in the end. Once the
rule would have scaled the model by more than this in all, gamma goes back to 0, where it began; the
letter's experiments stay below a factor of 5."""

ROUNDING = (3e-7, 1e-5)
"""How far rounding may move gamma and lambda in one step. gamma scales the model, of which float32
resolves 6e-8; lambda only shifts weight between models that are nearly the same."""

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class FedHAWState:
    """The coefficients, and what made the current global model.

    Attributes:
        gamma: log of the sum of the weights.
        scaling: sum of gamma over the rounds so far: the log of what the rule multiplied into the
            model.
        lambda_of: the logit of every client seen so far, by name.
        clients: who took part in the last round.
        weights: (K,) softmax of their logits: the relative weights the last model was made with.
        previous: (K, P) their models as the server used them; None before the first round, and
            when lambda is not learnt.
        rounds: how many rounds were aggregated.
        note: why the coefficients were held in the last round, or None.
    """

    gamma: float = 0.0
    scaling: float = 0.0
    lambda_of: Mapping[Client, float] = field(default_factory=dict)
    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))
    previous: Array | None = None
    rounds: int = 0
    note: str | None = None

    @property
    def lambdas(self) -> Vector:
        """(K,) the logits of the last round's clients."""
        return np.array([self.lambda_of[client] for client in self.clients], dtype=np.float64)

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"gamma": self.gamma}


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
    """

    eta: float
    eta_gamma: float
    eta_lambda: float
    start: Literal["share", "literal"] = "share"
    gamma_in_lambda_step: Literal["simultaneous", "sequential"] = "simultaneous"
    jacobian: Literal["diagonal", "full"] = "diagonal"
    learn: Literal["both", "gamma", "lambda"] = "both"
    history_dtype: Literal["bfloat16", "float16"] | None = None

    def __post_init__(self) -> None:
        check_number("FedHAW", "eta", self.eta, above=0)
        check_number("FedHAW", "eta_gamma", self.eta_gamma, at_least=0)
        check_number("FedHAW", "eta_lambda", self.eta_lambda, at_least=0)
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                options = ", ".join(repr(option) for option in known)
                raise InvalidRule(
                    f"FedHAW's {name} must be one of {options}; got {getattr(self, name)!r}."
                )

    def init(self) -> FedHAWState:
        """The state before the first round: gamma = 0, and no client known yet."""
        return FedHAWState()

    def aggregate(self, state: FedHAWState, current: Round) -> tuple[Array, FedHAWState]:
        """The next global model, (P,), and the coefficients that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        lambda_of = self._with_newcomers(state.lambda_of, current)
        gamma, note = state.gamma, None
        if state.rounds > 0:
            gamma, lambda_of, note = self._step(state, current, lambda_of)
        if abs(state.scaling + gamma) > SCALING_LIMIT:
            note = f"gamma = {gamma:.4g} would scale the model beyond tenfold in all; it is 0 again"
            gamma = 0.0
        weights = _cohort_weights(lambda_of, current.names)
        model = checked(combine(math.exp(gamma) * weights, current.client_models), current)
        return model, FedHAWState(
            gamma=gamma,
            scaling=state.scaling + gamma,
            lambda_of=lambda_of,
            clients=current.names,
            weights=weights,
            previous=self._kept(current.client_models),
            rounds=state.rounds + 1,
            note=note,
        )

    def hypergradients(
        self,
        state: FedHAWState,
        current: Round,
        lambda_of: Mapping[Client, float] | None = None,
    ) -> tuple[float, Vector]:
        """Derivatives of the loss at w with respect to gamma and to the previous clients' lambda.

        The second is for exp(gamma) at the value the state holds; the `sequential` reading scales
        it afterwards.

        Returns:
            df/dgamma, and (K,) df/dlambda_k in the order of `state.clients`.
        """
        w, W, U = current.global_model, current.client_models, state.previous
        if lambda_of is None:
            lambda_of = self._with_newcomers(state.lambda_of, current)
        scale, s = math.exp(state.gamma), state.weights
        unchanged_cohort = current.names == state.clients and lambda_of == state.lambda_of
        along_w, along_U = direction_products(
            w,
            W,
            s if unchanged_cohort else _cohort_weights(lambda_of, current.names),
            None if U is None else like(W, U, keep_dtype=True),
            tolerances=(
                ROUNDING[0] * self.eta / max(self.eta_gamma * scale, TINY),
                ROUNDING[1] * self.eta / max(self.eta_lambda * scale**2 / 4, TINY),
            ),
        )
        if self.learn == "gamma":
            return scale / self.eta * along_w, np.zeros(len(s))
        if self.jacobian == "diagonal":
            dw_dlambda = s * (1 - s) * along_U
        else:
            dw_dlambda = s * (along_U - s @ along_U)
        return scale / self.eta * along_w, scale**2 / self.eta * dw_dlambda

    def _step(
        self,
        state: FedHAWState,
        current: Round,
        lambda_of: dict[Client, float],
    ) -> tuple[float, dict[Client, float], str | None]:
        """Lines 9 and 10; the coefficients stay when a step is not finite or out of bounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            to_gamma, to_lambda = self.hypergradients(state, current, lambda_of)
            gamma = state.gamma
            if self.learn != "lambda":
                gamma -= self.eta_gamma * to_gamma
            if self.gamma_in_lambda_step == "sequential":
                to_lambda = to_lambda * np.exp(2 * (gamma - state.gamma))
            steps = (self.eta_lambda * to_lambda).tolist()
        if not math.isfinite(gamma + sum(steps)):
            return state.gamma, lambda_of, "the hypergradient is not finite; coefficients stayed"
        if abs(gamma) > GAMMA_LIMIT:
            note = f"a step to gamma = {gamma:.4g} is out of bounds; coefficients stayed"
            return state.gamma, lambda_of, note
        for client, step in zip(state.clients, steps, strict=True):
            lambda_of[client] -= step
        return gamma, lambda_of, None

    def _with_newcomers(
        self,
        known: Mapping[Client, float],
        current: Round,
    ) -> dict[Client, float]:
        """The logits of all clients, with those who join at their share of this round's data.

        The known clients of the round keep their weights relative to each other; together they get
        the share of the data they hold. A client that had no data so far (logit -inf) joins anew.
        """
        lambda_of = dict(known)
        newcomers = [c for c in current.names if lambda_of.get(c, -np.inf) == -np.inf]
        if not newcomers:
            return lambda_of
        share_of = dict(zip(current.names, current.shares, strict=True))
        present = [client for client in current.names if client not in set(newcomers)]
        held = sum(share_of[client] for client in present)
        offset = 0.0
        if held > 0:
            logits = np.array([known[client] for client in present])
            offset = float(np.logaddexp.reduce(logits) - np.log(held))
        for client in newcomers:
            share = float(share_of[client])
            if self.start == "literal":
                lambda_of[client] = share
            else:
                lambda_of[client] = float(np.log(share)) + offset if share > 0 else -np.inf
        return lambda_of

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


def _cohort_weights(lambda_of: Mapping[Client, float], cohort: tuple[Client, ...]) -> Vector:
    return softmax(np.array([lambda_of[client] for client in cohort]))

"""Any differentiable aggregation, its coefficients learnt online as FedHAW learns its own.

The server makes w(t) by a formula with coefficients c from what it held a round ago, the global
model v = w(t-1) and the client models U = W(t-1), and now holds what clients made of w = w(t):

    w(t) = A(c; v, U)                                               last round

Hypergradient descent moves c against the derivative of the loss at w, by the chain rule:

    g      = 1/eta sum_k dA/dw_k(c; w, W) (w - w_k)                 estimate of the gradient at w
    c'     = c - rate (dA/dc(c; v, U))^T g
    w(t+1) = A(c'; w, W)

A client that descends at rate eta moves by w_k - w = -eta g_k, so (w - w_k) / eta is its gradient,
and A weighs gradients as it weighs models: by its derivative in W. Both derivatives come from
torch.func and are products with a vector, never a matrix: `jvp` pushes the updates w - w_k forward
through A, `vjp` pulls g back to the coefficients. Forming g from updates, instead of as a
difference of two aggregates, keeps the digits that would cancel.

FedHAW is A = exp(gamma) sum_k softmax(lambda)_k w_k. With s = softmax(lambda):

    dA/dw_k = exp(gamma) s_k                 g = exp(gamma)/eta d,  d = w - sum_j s_j w_j
    dA/dgamma = A(c; v, U) = w               <w, g> = exp(gamma)/eta <d, w>
    dA/dlambda_k                             <dA/dlambda_k, g>
      = exp(gamma) s_k (u_k - sum_j s_j u_j)   = exp(2 gamma)/eta s_k <d, u_k - sum_j s_j u_j>

which is Algorithm 1 with the full Jacobian: one exp(gamma) of line 10 is the formula's own, the
other, like that of line 9, comes with g.

FedHyper-G is A = w + (1 + a) Delta(W), Delta the plain mean of the updates. dA/da is last round's
Delta; it takes g = -Delta, without eta and without the (1 + a) that dA/dw_k would bring, rate 1,
and clips a. Such an estimate of one's own is given as `gradient`.

The letter closes with this extension: Nakai-Kasai and Wadayama, "Federated Learning with
Hypergradient-based Online Update of Aggregation Weights".
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedhaw.errors import named
from fedhaw.hypergradient.coefficients import Start, check_coefficients, per_client, shared
from fedhaw.hypergradient.models import Models, assembled, back, models_of
from fedhaw.hypergradient.state import HypergradientState
from fedhaw.rules.base import Array, Client, InvalidRound, InvalidRule, Round, Vector, check_number
from fedhaw.rules.guards import checked, refusing_other_states, unchanged
from fedhaw.rules.logits import with_newcomers
from fedhaw.rules.passes import combine, is_finite, like, to_vector

Formula: TypeAlias = Callable[[dict[str, Tensor], Models], Tensor]
"""Coefficients by name, in the models' dtype, and a round's models -> a tensor."""


@refusing_other_states
@dataclass(frozen=True, eq=False)  # functions and arrays do not compare
class HypergradientRule:
    """A rule made from a formula.

    Attributes:
        formula: (coefficients, models) -> (P,) the next global model, by torch operations only;
            differentiable in the coefficients, and in `models.W` unless `gradient` is given.
        start: where each coefficient begins. A number or an array: one for all clients. A function
            of (shares, known) such as `log_shares`: one number for each client, known by name;
            see `fedhaw.rules.logits.Joining`.
        rates: each coefficient's meta learning rate; 0 keeps it at its start.
        eta: the clients' learning rate, for the estimate of the gradient given above.
        gradient: (coefficients, models) -> (P,) another estimate of the gradient, instead of eta.
        limits: the least and the greatest value a coefficient may take, by name.
        beyond: what happens to a step beyond a limit. "hold": all coefficients stay, as FedHAW
            does. "clip": it ends at the limit, as FedHyper-G does.
        weights: (coefficients, models) -> (K,) what to record as the clients' weights, and to
            average running statistics with; None: their shares of the data.
    """

    formula: Formula
    start: Start
    rates: Mapping[str, float]
    eta: float | None = None
    gradient: Formula | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    beyond: Literal["hold", "clip"] = "hold"
    weights: Formula | None = None

    def __post_init__(self) -> None:
        for name in ("formula", "gradient", "weights"):
            given = getattr(self, name)
            if not callable(given) and (given is not None or name == "formula"):
                raise InvalidRule(
                    f"HypergradientRule's {name} must be a function of (coefficients, models); "
                    f"got {given!r}."
                )
        if (self.eta is None) == (self.gradient is None):
            raise InvalidRule(
                "HypergradientRule needs either eta, the clients' learning rate, or gradient, an "
                "estimate of your own: give one of them."
            )
        if self.eta is not None:
            check_number("HypergradientRule", "eta", self.eta, above=0)
        if self.beyond not in ("hold", "clip"):
            raise InvalidRule(
                f"HypergradientRule's beyond must be one of 'hold', 'clip'; got {self.beyond!r}."
            )
        check_coefficients(self.start, self.rates, self.limits)

    def init(self) -> HypergradientState:
        """The state before the first round: shared coefficients at their start, no client known."""
        common, own = shared(self.start), per_client(self.start)
        return HypergradientState(
            names=tuple(common),
            values=np.concatenate([np.zeros(0), *(value.ravel() for value in common.values())]),
            sizes=np.array([value.size for value in common.values()], dtype=np.int64),
            client_names=tuple(own),
            client_values=np.zeros((0, len(own))),
        )

    @torch.no_grad()
    def aggregate(
        self, state: HypergradientState, current: Round
    ) -> tuple[Array, HypergradientState]:
        """The next global model, (P,), and the coefficients that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        self._check_state(state, current)
        # A formula may hide what is not finite, as a median does: look before it sees the models.
        checked(combine(current.shares, current.client_models), current)
        models = models_of(current)
        before = after = self._with_newcomers(state, current)
        note = None
        if state.rounds > 0 and any(self.rates.values()):
            after, note = self._stepped(state, before, current)
        model = self._evaluate(self.formula, self._tensors(after, current.clients, models), models)
        if after is not before and not is_finite(model):
            after, note = before, "the stepped model is not finite; coefficients stayed"
            model = self._evaluate(
                self.formula, self._tensors(after, current.clients, models), models
            )
        result = back(model, current.global_model)
        if not is_finite(result):
            raise InvalidRound(
                "HypergradientRule's formula gives a model that is not finite, though every client "
                "model is; correct the formula or the start of its coefficients."
            )
        return result, replace(
            after,
            clients=current.clients,
            weights=self._recorded_weights(after, models, current),
            shares=current.shares,
            # The caller may write the next global model over this one.
            global_model=unchanged(current),
            previous=current.client_models,
            rounds=state.rounds + 1,
            note=note,
        )

    @torch.no_grad()
    def hypergradients(self, state: HypergradientState, current: Round) -> dict[str, Vector]:
        """Derivatives of the loss at w with respect to the coefficients with a rate above 0.

        Returns:
            By name: an array of the start's shape, or (K,) in the order of `state.clients`.
        """
        if state.rounds == 0:
            raise InvalidRound("Hypergradients need the state after a round; aggregate one first.")
        models = models_of(current)
        present = self._tensors(self._with_newcomers(state, current), current.clients, models)
        g = self._gradient(present, models)
        past = assembled(state.global_model, state.previous, state.shares, current, models.W)
        made_with = self._tensors(state, state.clients, models)
        learnt = {name: made_with[name] for name, rate in self.rates.items() if rate > 0}
        pull_back = torch.func.vjp(
            lambda moving: self._evaluate(self.formula, {**made_with, **moving}, past), learnt
        )[1]
        return {name: to_vector(value) for name, value in pull_back(g)[0].items()}

    def _gradient(self, c: dict[str, Tensor], models: Models) -> Tensor:
        """(P,) g, the estimate of the gradient at w."""
        if self.gradient is not None:
            return self._evaluate(self.gradient, c, models)
        try:
            with warnings.catch_warnings():
                # torch's forward mode loads a part of torch that torch itself has deprecated.
                warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
                pushed: Tensor = torch.func.jvp(
                    lambda W: self._evaluate(self.formula, c, models._replace(W=W)),
                    (models.W,),
                    (models.w - models.W,),
                )[1]
        except NotImplementedError as error:
            raise InvalidRule(
                "HypergradientRule cannot push the updates forward through its formula "
                f"({named(error)}); give an estimate of your own as gradient."
            ) from error
        assert self.eta is not None
        return pushed / self.eta

    def _stepped(
        self, past: HypergradientState, state: HypergradientState, current: Round
    ) -> tuple[HypergradientState, str | None]:
        """A step of all coefficients or of none; those of clients are the past round's."""
        new = state.at(state.clients)
        for name, slope in self.hypergradients(past, current).items():
            old = new[name]
            value = old - self.rates[name] * np.reshape(slope, old.shape)
            if not np.all(np.isfinite(value) | ~np.isfinite(old)):
                return state, "the hypergradient is not finite; coefficients stayed"
            low, high = self.limits.get(name, (-np.inf, np.inf))
            beyond = np.isfinite(value) & ((value < low) | (value > high))
            if beyond.any() and self.beyond == "hold":
                step = f"a step to {name} = {value[beyond][0]:.4g}"
                return state, f"{step} is out of bounds; coefficients stayed"
            new[name] = np.where(beyond, np.clip(value, low, high), value)
        return state.with_values(state.clients, new), None

    def _with_newcomers(self, state: HypergradientState, current: Round) -> HypergradientState:
        """The state with coefficients for every client of the round; unchanged if none joins."""
        values, joins = state.at(current.clients), False
        for name, joining in per_client(self.start).items():
            begun = with_newcomers(name, values[name], current.shares, joining)
            values[name], joins = begun, joins or begun is not values[name]
        return state.with_values(current.clients, values) if joins else state

    def _tensors(
        self, state: HypergradientState, cohort: tuple[Client, ...], models: Models
    ) -> dict[str, Tensor]:
        """Coefficients by name, in the shapes of the start, of the models' dtype and device."""
        shapes = {name: value.shape for name, value in shared(self.start).items()}
        return {
            name: like(models.W, value.copy()).reshape(shapes.get(name, value.shape))
            for name, value in state.at(cohort).items()
        }

    def _evaluate(
        self, formula: Formula, coefficients: dict[str, Tensor], models: Models
    ) -> Tensor:
        """(P,) what `formula` makes of the models, if it is a model."""
        result = formula(coefficients, models)
        if not isinstance(result, Tensor) or result.shape != models.w.shape:
            raise InvalidRule(
                f"A formula must return a tensor of the model's shape {tuple(models.w.shape)}; got "
                f"{type(result).__name__} of shape {tuple(getattr(result, 'shape', ()))}."
            )
        return result.to(models.W.dtype)

    def _recorded_weights(
        self, state: HypergradientState, models: Models, current: Round
    ) -> Vector:
        if self.weights is None:
            return current.shares
        coefficients = self._tensors(state, current.clients, models)
        weights = to_vector(torch.as_tensor(self.weights(coefficients, models)))
        fit = weights.shape == current.shares.shape and bool((weights >= 0).all())
        if not fit or not 0 < weights.sum() < np.inf:
            raise InvalidRule(
                "HypergradientRule's weights must be one number, 0 or more, for each of the "
                f"round's {len(current.clients)} clients; got {weights!r}."
            )
        normalised: Vector = weights / weights.sum()
        return normalised

    def _check_state(self, state: HypergradientState, current: Round) -> None:
        mine = self.init()
        if (state.names, state.client_names) != (mine.names, mine.client_names) or (
            state.values.shape != mine.values.shape
        ):
            raise InvalidRule(
                f"The state has coefficients {(*state.names, *state.client_names)}, the rule "
                f"{(*mine.names, *mine.client_names)}; go on with the rule that made the state."
            )
        if state.previous is not None and state.previous.shape[1] != current.global_model.shape[0]:
            raise InvalidRound(
                f"The state is of a model with {state.previous.shape[1]} parameters, the round of "
                f"one with {current.global_model.shape[0]}; begin anew with init()."
            )

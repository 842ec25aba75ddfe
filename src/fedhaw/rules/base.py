"""What every server rule receives, keeps and returns.

One round of federated learning, seen from the server, is K client models of P numbers each, the
global model they started from, and how many samples stand behind each. A *rule* turns that, and
what it remembers of earlier rounds, into the next global model:

    state           = rule.init()
    w(t+1), state'  = rule.aggregate(state, Round(w(t), W(t), N))

A rule is a frozen dataclass of hyper-parameters and a state is an immutable record, so `aggregate`
is a pure function: saving, resuming and replaying a federation need nothing else.

Models may be NumPy arrays or torch tensors on any device. Coefficients, K numbers at a time, are
float64 NumPy arrays wherever the models live.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.errors import FedhawError, shown

Array: TypeAlias = Any
"""A NumPy array or a torch tensor; the array API has no common type to name."""

Vector: TypeAlias = NDArray[np.float64]
"""Coefficients: one float64 per client, always in NumPy."""

Client: TypeAlias = Hashable
"""A client's name. Coefficients follow the name, never the position in a round."""

Metrics: TypeAlias = Mapping[str, float | Vector | Mapping[Client, float]]
"""What a rule learnt in a round: a number, or a few, or one for each client, by name. Nothing
between a rule and the page that draws them knows these names."""


Needs: TypeAlias = Literal["sum", "clients"]
"""What a rule has to see: only the weighted sum of the updates, or each client's."""


def namespace(*arrays: Array) -> Any:
    """The array API of the arrays' backend.

    NumPy's own functions are its array API; asking for them by type saves a few microseconds a
    call, which small models notice.
    """
    for array in arrays:
        if not isinstance(array, np.ndarray):
            return array_api_compat.array_namespace(*arrays)
    return np


class InvalidRule(FedhawError, ValueError):
    """A rule was given a hyper-parameter it cannot work with."""


def check_number(
    rule: str,
    name: str,
    value: object,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    whole: bool = False,
) -> None:
    """A check that a hyper-parameter is a finite number, or a whole one, in its range.

    Raises:
        InvalidRule: with a sentence that names the rule, the parameter and the range.
    """
    bounds = [(">=", at_least), (">", above), ("<=", at_most), ("<", below)]
    wanted = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        number = float(value)
        inside = at_least <= number <= at_most and above < number < below
        if math.isfinite(number) and inside and (number.is_integer() or not whole):
            return
    kind = "whole" if whole else "finite"
    raise InvalidRule(f"{rule} needs a {kind} number {name} {wanted}; got {shown(value)}.")


class InvalidRound(FedhawError, ValueError):
    """A round whose parts do not fit together."""


class InvalidClientModel(InvalidRound):
    """Some clients sent models that must not reach the sum.

    Attributes:
        clients: who sent them; a caller treats these as lost and aggregates again.
        reason: what is wrong with their models, in a few words.
    """

    def __init__(self, clients: Sequence[Client], reason: str) -> None:
        self.clients = tuple(clients)
        self.reason = reason
        names = ", ".join(repr(client) for client in self.clients)
        who = "client" if len(self.clients) == 1 else "clients"
        super().__init__(
            f"The model of {who} {names} {reason}; treat the upload as lost and aggregate again."
        )


@dataclass(frozen=True, eq=False, init=False)
class Round:
    """What the server holds when a round's uploads are in.

    Attributes:
        global_model: (P,) the model that was sent out, w(t).
        client_models: (K, P) what came back, a row per client; a sequence of K vectors is stacked.
            A rule may keep it and the global model as its memory of the round: do not write into
            them while the state that followed is in use (two matrices, swapped each round, are
            enough).
        num_examples: (K,) how many samples each client trained on.
        received: (K,) False where the upload was lost, default all True. The row of a lost upload
            stands for the global model; rows that hold anything else are replaced in a copy.
        clients: K distinct names, default 0..K-1.
        layers: where each layer lies in the vector, as slices in order; only FedLWS asks.
    """

    global_model: Array
    client_models: Array
    num_examples: Vector
    received: NDArray[np.bool_]
    clients: tuple[Client, ...]
    layers: tuple[slice, ...] | None

    def __init__(
        self,
        global_model: Array,
        client_models: Array,
        num_examples: ArrayLike,
        received: ArrayLike | None = None,
        clients: Sequence[Client] | None = None,
        layers: Sequence[slice] | None = None,
    ) -> None:
        if isinstance(client_models, (list, tuple)):
            client_models = _stacked(global_model, client_models, clients)
        P, K = _check_models(global_model, client_models)
        set_field = partial(object.__setattr__, self)
        set_field("global_model", _detached(global_model))
        set_field("client_models", _detached(client_models))
        set_field("clients", _checked_names(clients, K))
        set_field("num_examples", _checked_examples(num_examples, self.clients))
        set_field("received", _checked_received(received, K))
        set_field("client_models", self._with_lost_rows_filled())
        set_field("layers", None if layers is None else _checked_layers(layers, P))

    @property
    def names(self) -> tuple[Client, ...]:
        """The K client names."""
        return self.clients

    @property
    def nothing_arrived(self) -> bool:
        """Every upload was lost: there is nothing to learn, so every rule keeps w and its state."""
        return not np.count_nonzero(self.received)

    @cached_property
    def shares(self) -> Vector:
        """(K,) each client's share of the data, N_k / N."""
        # Dividing by the largest first keeps a sum of very large counts finite.
        N = self.num_examples / self.num_examples.max()
        shares: Vector = N / N.sum()
        return shares

    def _with_lost_rows_filled(self) -> Array:
        w, W = self.global_model, self.client_models
        if self.received.all():
            return W
        xp = namespace(W)
        stale = [k for k in np.flatnonzero(~self.received) if not bool(xp.all(W[int(k)] == w))]
        if not stale:
            return W
        W = xp.asarray(W, copy=True)
        for k in stale:
            W[int(k)] = w
        return W


# Checks, one part of the round each.


def _stacked(w: Array, models: Sequence[Array], clients: Sequence[Client] | None) -> Array:
    if not models:
        raise InvalidRound("The round has no clients; skip a round nobody was asked in.")
    for model in (w, *models):
        _require_array("Each of client_models", model)
    names = clients if clients is not None else range(len(models))
    shape = tuple(w.shape)
    wrong = [
        name for name, model in zip(names, models, strict=False) if tuple(model.shape) != shape
    ]
    if wrong:
        raise InvalidClientModel(wrong, f"does not have the global model's shape {shape}")
    try:
        return namespace(*models).stack(list(models))
    except (TypeError, RuntimeError) as error:
        raise InvalidRound(
            f"client_models cannot be stacked ({error}); give arrays of one kind and dtype."
        ) from error


def _detached(model: Array) -> Array:
    """The model without its history, which would keep every round before it alive."""
    if isinstance(model, np.ndarray) or not array_api_compat.is_torch_array(model):
        return model
    return model.detach()


def _check_models(w: Array, W: Array) -> tuple[int, int]:
    """P and K, once the models fit together."""
    _require_array("global_model", w)
    _require_array("client_models", W)
    try:
        xp = namespace(w, W)
    except TypeError as error:
        raise InvalidRound(
            "global_model and client_models must be arrays of one kind, NumPy or torch; got "
            f"{type(w).__name__} and {type(W).__name__}."
        ) from error
    if w.ndim != 1:
        raise InvalidRound(
            f"global_model must be one flat vector; got shape {tuple(w.shape)}: flatten it."
        )
    if W.ndim != 2 or W.shape[1] != w.shape[0]:
        raise InvalidRound(
            f"client_models must have shape (K, {w.shape[0]}) to match global_model; got "
            f"{tuple(W.shape)}."
        )
    if W.shape[0] == 0 or W.shape[1] == 0:
        raise InvalidRound(
            "The round has no clients; skip a round nobody was asked in."
            if W.shape[0] == 0
            else "The models have no parameters; there is nothing to aggregate."
        )
    if not _is_real_floating(xp, W.dtype) or W.dtype != w.dtype:
        raise InvalidRound(
            "global_model and client_models must share one floating dtype; got "
            f"{w.dtype} and {W.dtype}: convert them before aggregating."
        )
    return int(W.shape[1]), int(W.shape[0])


def _checked_names(clients: Sequence[Client] | None, K: int) -> tuple[Client, ...]:
    try:
        names = tuple(range(K)) if clients is None else tuple(clients)
        distinct = len(set(names))
    except TypeError as error:
        raise InvalidRound(
            f"clients must be a sequence of hashable names ({error}); use texts or numbers."
        ) from error
    if len(names) != K:
        raise InvalidRound(f"clients names {len(names)} clients but client_models has {K}.")
    if distinct != K:
        twice = sorted({repr(name) for name in names if names.count(name) > 1})
        raise InvalidRound(
            f"Client names must be distinct; {', '.join(twice)} stands twice in the round."
        )
    return names


def _checked_examples(num_examples: ArrayLike, names: tuple[Client, ...]) -> Vector:
    K = len(names)
    try:
        examples = np.asarray(num_examples, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidRound(f"num_examples must hold a number for each client ({error}).") from error
    if examples.shape != (K,):
        raise InvalidRound(
            f"num_examples must hold one number for each of the {K} clients; got shape "
            f"{examples.shape}."
        )
    for name, number in zip(names, examples.tolist(), strict=True):
        if not 0 <= number < math.inf:  # NaN fails both
            raise InvalidRound(
                f"num_examples of client {name!r} is {number:g}; it must be a finite number, "
                "0 or more."
            )
    if not np.count_nonzero(examples):
        raise InvalidRound("num_examples is 0 for every client; nobody has data to weigh.")
    return examples


def _checked_received(given: ArrayLike | None, K: int) -> NDArray[np.bool_]:
    if given is None:
        return np.array([True] * K)
    received = np.array(given)  # a copy: rules remember it
    if received.shape != (K,) or received.dtype != np.bool_:
        raise InvalidRound(
            f"received must hold one bool for each of the {K} clients; got {received.dtype} "
            f"of shape {received.shape}."
        )
    return received


def _checked_layers(layers: Sequence[slice], P: int) -> tuple[slice, ...]:
    whole = isinstance(layers, Sequence) and all(
        isinstance(layer, slice) and isinstance(layer.stop, int) for layer in layers
    )
    edges = [0, *(layer.stop for layer in layers)] if whole else [0]
    in_order = whole and all(
        layer.start == edge and layer.stop > edge and layer.step in (None, 1)
        for layer, edge in zip(layers, edges, strict=False)
    )
    if not in_order or edges[-1] != P:
        raise InvalidRound(
            "layers must be slices that cover the model in order without gaps, "
            f"[slice(0, a), slice(a, b), ..., slice(y, {P})]."
        )
    return tuple(layers)


def _require_array(what: str, value: object) -> None:
    if not isinstance(value, np.ndarray) and not array_api_compat.is_array_api_obj(value):
        raise InvalidRound(
            f"{what} must be an array, NumPy or torch; got {type(value).__name__}: convert it."
        )


def _is_real_floating(xp: Any, dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        # NumPy's isdtype is slow, and stumbles over types of extensions such as bfloat16.
        return issubclass(dtype.type, np.floating)
    return bool(xp.isdtype(dtype, "real floating"))


class State(Protocol):
    """What a rule remembers between rounds; a frozen dataclass of arrays, numbers and names."""

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients of the last aggregated round, in its order; empty before the first."""

    @property
    def weights(self) -> Vector:
        """(K,) their relative weights in that round: non-negative, summing to 1."""

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt in that round, by name; empty for a rule that learns nothing."""


S = TypeVar("S", bound=State)


class Rule(Protocol[S]):
    """A server rule: hyper-parameters, a start, and a pure step.

    A rule that looks at nothing but the weighted sum of the updates may say so by
    ``needs: ClassVar[Needs] = "sum"``: it can then be had with differential privacy, and its
    clients may add up their updates in secret. One that learns less from a sum, but works, says by
    ``of_the_sum: ClassVar[str]`` what is left.
    """

    def init(self) -> S:
        """The state before the first round."""

    def aggregate(self, state: S, current: Round) -> tuple[Array, S]:
        """The next global model, (P,), and the state that goes with it.

        A round in which every upload was lost returns the global model and the state unchanged.

        Raises:
            InvalidClientModel: a client's model is not finite; the error names the clients.
        """

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.rules.errors import InvalidClientModel, InvalidRound, InvalidRule, check_number
from fedhaw.rules.kinds import Array, Client, Metrics, Needs, Vector, namespace
from fedhaw.rules.round_checks import (
    check_models,
    checked_examples,
    checked_layers,
    checked_mask,
    checked_names,
    detached,
    stacked,
)

__all__ = [
    "Array",
    "Client",
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "LastRound",
    "Metrics",
    "Needs",
    "Round",
    "Rule",
    "State",
    "Vector",
    "check_number",
    "namespace",
    "spared_by",
    "suited",
]
"""What a rule's file needs."""


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
        late: (K,) True where what was received answers an earlier round, default nowhere: the
            update is stale, and moved to the present global model (`fedhaw.late`).
        refused: (K,) True where an upload came and was not taken for what it held, default nowhere.
            It is not received, but was not lost by chance either.
    """

    global_model: Array
    client_models: Array
    num_examples: Vector
    received: NDArray[np.bool_]
    clients: tuple[Client, ...]
    layers: tuple[slice, ...] | None
    late: NDArray[np.bool_]
    refused: NDArray[np.bool_]

    def __init__(
        self,
        global_model: Array,
        client_models: Array,
        num_examples: ArrayLike,
        received: ArrayLike | None = None,
        clients: Sequence[Client] | None = None,
        layers: Sequence[slice] | None = None,
        late: ArrayLike | None = None,
        refused: ArrayLike | None = None,
    ) -> None:
        if isinstance(client_models, (list, tuple)):
            client_models = stacked(global_model, client_models, clients)
        P, K = check_models(global_model, client_models)
        set_field = partial(object.__setattr__, self)
        set_field("global_model", detached(global_model))
        set_field("client_models", detached(client_models))
        set_field("clients", checked_names(clients, K))
        set_field("num_examples", checked_examples(num_examples, self.clients))
        set_field("received", checked_mask("received", received, K, default=True))
        set_field("client_models", self._with_lost_rows_filled())
        set_field("layers", None if layers is None else checked_layers(layers, P))
        set_field("late", checked_mask("late", late, K, default=False) & self.received)
        set_field("refused", checked_mask("refused", refused, K, default=False))

    @property
    def nothing_arrived(self) -> bool:
        """Every upload was lost: there is nothing to learn, so every rule keeps w and its state."""
        return not np.count_nonzero(self.received)

    @property
    def in_time(self) -> NDArray[np.bool_]:
        """(K,) True where what was received answers this round."""
        return self.received & ~self.late

    @property
    def refused_clients(self) -> tuple[Client, ...]:
        """The clients whose upload was refused."""
        return tuple(self.clients[int(k)] for k in np.flatnonzero(self.refused))

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


@dataclass(frozen=True)
class LastRound:
    """What every state of fedhaw's own rules tells; each adds what else its rule remembers.

    Attributes:
        clients: who took part in the last round.
        weights: (K,) their relative weights in it.
        note: what to tell people of it, such as why nothing was learnt, or None.
    """

    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))
    note: str | None = None

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name: nothing, unless it says otherwise."""
        return {}


S = TypeVar("S", bound=State)


@runtime_checkable
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


def spared_by(state: State) -> tuple[Client, ...]:
    """The clients whose long updates a rule shortens itself, so that the guard leaves them to it.

    A state names them as `spared`; most rules have nobody.
    """
    spared: tuple[Client, ...] = getattr(state, "spared", ())
    return spared


R = TypeVar("R")


def suited(rule: R, client_update: object) -> R:
    """The rule as it suits clients: without replay where their update speaks for those absent."""
    without_replay: Callable[[], R] | None = getattr(rule, "without_replay", None)
    if without_replay is None or not getattr(client_update, "speaks_for_absent", False):
        return rule
    return without_replay()

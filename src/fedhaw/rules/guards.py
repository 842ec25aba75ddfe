"""What keeps a bad upload, a bad number or another rule's memory out of the global model."""

from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from fedhaw.loss_reasons import NOT_FINITE
from fedhaw.rules.base import (
    Array,
    Client,
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Round,
    Rule,
    State,
    namespace,
)
from fedhaw.rules.passes import is_finite, non_finite_rows

S = TypeVar("S", bound=State)
R = TypeVar("R", bound=Rule[Any])


def refusing_other_states(cls: type[R]) -> type[R]:
    """The class of a rule, whose `aggregate` refuses a state that `init` would not make."""
    aggregate, own = cls.aggregate, cls.init.__annotations__["return"]

    @wraps(aggregate)
    def of_own_state(self: R, state: State, current: Round) -> tuple[Array, State]:
        if not isinstance(state, own):
            raise InvalidRound(
                f"{cls.__name__} was given a {type(state).__name__} as its state, which is another "
                "rule's; begin with init() and go on with what aggregate returns."
            )
        return aggregate(self, state, current)

    setattr(cls, aggregate.__name__, of_own_state)
    return cls


def checked(model: Array, current: Round) -> Array:
    """`model`, the weighted sum of the round's client models, if all of them were finite.

    A NaN or an infinity in any row makes the sum non-finite, even at weight 0 (0 * inf is NaN), so
    one look at the P numbers of the sum stands for a look at all K * P. Rows are searched only to
    name the culprit.

    Raises:
        InvalidClientModel: some client's model is not finite.
        InvalidRound: all are finite, but the global model is not or the sum overflowed.
    """
    if is_finite(model):
        return model
    rows = non_finite_rows(current.client_models)
    senders = [k for k in rows if current.received[k]]
    if senders:
        raise InvalidClientModel([current.clients[k] for k in senders], f"is {NOT_FINITE}")
    if not is_finite(current.global_model):
        raise InvalidRound("global_model is not finite; go back to a checkpoint that is.")
    raise InvalidRound(
        "The aggregated model overflows its floating type though every client model is finite; "
        "the models have diverged: lower the clients' learning rate or go back to a checkpoint."
    )


def unchanged(current: Round) -> Array:
    """A copy of the global model: what follows a round in which nothing arrived."""
    xp = namespace(current.global_model)
    return xp.asarray(current.global_model, copy=True)


def aggregate_surviving(
    rule: Rule[S], state: S, current: Round
) -> tuple[Array, S, dict[Client, str]]:
    """An aggregation in which clients whose models the rule refuses count as lost.

    The rows of refused clients are overwritten with the global model, in place: the caller owns the
    matrix, and what was there is of no use to anybody.

    Returns:
        The next global model, the state, and why each refused client was refused.

    Raises:
        InvalidRule: the rule does not return a model and a state that knows its clients' weights.
    """
    try:
        model, state = _aggregated(rule, state, current)
    except InvalidClientModel as refusal:
        refused = set(refusal.clients)
        received = current.received.copy()
        for k, name in enumerate(current.clients):
            if name in refused:
                current.client_models[k] = current.global_model
                received[k] = False
        model, state = _aggregated(rule, state, replace(current, received=received))
        return model, state, dict.fromkeys(refusal.clients, refusal.reason.removeprefix("is "))
    return model, state, {}


def _aggregated(rule: Rule[S], state: S, current: Round) -> tuple[Array, S]:
    """What a rule returns, if it is what a rule returns: it may be a user's own."""
    name, made = type(rule).__name__, rule.aggregate(state, current)
    if not isinstance(made, tuple) or len(made) != 2:
        raise InvalidRule(
            f"{name}.aggregate returned a {type(made).__name__}; it must return the next global "
            "model and the state."
        )
    clients, weights = (getattr(made[1], part, None) for part in ("clients", "weights"))
    if clients is None or weights is None or len(clients) != len(weights):
        raise InvalidRule(
            f"{name}.aggregate returned a {type(made[1]).__name__} as its state; a state has "
            "clients, and weights with a number for each of them."
        )
    return made

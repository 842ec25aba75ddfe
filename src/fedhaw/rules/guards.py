"""What keeps a bad upload, or a bad number, out of the global model."""

from dataclasses import replace
from typing import TypeVar

from fedhaw.rules.base import (
    Array,
    Client,
    InvalidClientModel,
    InvalidRound,
    Round,
    Rule,
    State,
    namespace,
)
from fedhaw.rules.reductions import is_finite, non_finite_rows

S = TypeVar("S", bound=State)


def checked(model: Array, round: Round) -> Array:  # noqa: A002
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
    rows = non_finite_rows(round.client_models)
    senders = [k for k in rows if round.arrived[k]]
    if senders:
        raise InvalidClientModel([round.names[k] for k in senders], "is not finite")
    if not is_finite(round.global_model):
        raise InvalidRound("global_model is not finite; go back to a checkpoint that is.")
    raise InvalidRound(
        "The aggregated model overflows its floating type though every client model is finite; "
        "the models have diverged: lower the clients' learning rate or go back to a checkpoint."
    )


def unchanged(round: Round) -> Array:  # noqa: A002
    """A copy of the global model: what follows a round in which nothing arrived."""
    xp = namespace(round.global_model)
    return xp.asarray(round.global_model, copy=True)


def aggregate_surviving(
    rule: Rule[S],
    state: S,
    round: Round,  # noqa: A002
) -> tuple[Array, S, dict[Client, str]]:
    """Aggregate, treating clients whose models the rule refuses as lost.

    The rows of refused clients are overwritten with the global model, in place: the caller owns the
    matrix, and what was there is of no use to anybody.

    Returns:
        The next global model, the state, and why each refused client was refused.
    """
    try:
        model, state = rule.aggregate(state, round)
    except InvalidClientModel as refusal:
        refused = set(refusal.clients)
        arrived = round.arrived.copy()
        for k, name in enumerate(round.names):
            if name in refused:
                round.client_models[k] = round.global_model
                arrived[k] = False
        model, state = rule.aggregate(state, replace(round, received=arrived))
        return model, state, dict.fromkeys(refusal.clients, refusal.reason)
    return model, state, {}

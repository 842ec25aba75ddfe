"""What FedHAW-auto takes a lost client's update to be: its last one, fading while it stays away."""

from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Array, Client, Round, namespace
from fedhaw.rules.passes import like

REPLAY = 0.8
"""What is left of an update after a round."""


def replayed(state: FedHAWAutoState, current: Round) -> tuple[tuple[Client, ...], Array | None]:
    """The clients lost in this round whose last update is known, and (L, P) what to replay.

    What a client sent while it was not trusted is never replayed, and nothing of one whose upload
    of this round was refused.
    """
    if state.previous is None or state.arrived is None:
        return (), None
    answered = {
        name
        for name, here, weight in zip(state.clients, state.arrived, state.weights, strict=True)
        if here and weight > 0
    }
    lost = ~current.received & ~current.refused
    absent = tuple(
        name
        for name, missing in zip(current.clients, lost, strict=True)
        if missing and name not in state.distrusted and (name in answered or name in state.absent)
    )
    if not absent:
        return (), None
    W = current.client_models
    sent = like(W, state.sent)
    updates = namespace(W).empty_like(W[: len(absent)])
    for row, name in zip(updates, absent, strict=True):
        if name in answered:
            row[:] = like(W, state.previous[state.clients.index(name)])
            row -= sent
        else:
            assert state.replayed is not None
            row[:] = like(W, state.replayed[state.absent.index(name)])
        row *= REPLAY
    return absent, updates

"""What an upload is worth that comes rounds after it was asked for.

A client that was asked in round s and whose model arrives in round t went from w(s) to w_k. Its
update still tells where its data pull, but of a model that the others have left behind:

    w_k' = w(t) + FADE^(t - s) (w_k - w(s))

is what the rule gets in its place, marked as late (`Round.late`). The update fades as FedHAW-auto
lets a lost client's last update fade when it replays it. docs/simulation.md shows what late uploads
are worth beside lost ones.
"""

from typing import Any

from fedhaw.rules.auto_replay import REPLAY

FADE = REPLAY
"""What is left of an update after a round."""

ROUNDS = 5
"""For how many rounds an upload that missed its own is still taken, unless somebody says."""


def moved_to(now: Any, then: Any, model: Any, age: int) -> None:
    """A late model, (P,), moved in place to where the global model is by now.

    Args:
        now: (P,) w(t), the global model of the round in which it arrived.
        then: (P,) w(s), the global model that the client was sent.
        model: (P,) w_k; overwritten.
        age: t - s, in rounds.
    """
    model -= then
    model *= FADE**age
    model += now


def counts(client: object, asked: int, age: int) -> str:
    """The sentence that tells of a late upload."""
    return f"client {client}: its update of round {asked} came late and counts {FADE**age:.2g}"

"""What FedHAW-auto takes a lost client's update to be: its last one, fading while it stays away.

    m_k       = REPLAY^age Delta_k min(1, l_k / |Delta_k|)
    lost    k : l_k = own_k                       own_k: the running mean of what the lengths of
    refused k : l_k = min(own_k, median_j own_j)         client k's updates counted as (`trust`)

and of who is on parole no more than is usual among the others.

Where single clients come near to diverging, one update in some is several times as long as the
client's others, and points elsewhere; replayed five times it shakes the model, and more of them
follow. So it counts as no longer than these.

A client may be refused for the length of its update. If nothing stood in for one whose training has
diverged, the model would soon forget its data, and the next update be longer still: it would stay
shut out. But that is also how a lie goes on. So what it sent before is replayed if it is known for
as long as a verdict takes (`Evidence.knows`), as no longer than is usual among all.
"""

import math
from collections.abc import Collection

import numpy as np

from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Array, Client, Round, namespace
from fedhaw.rules.passes import like, products
from fedhaw.rules.trust import Evidence

REPLAY = 0.8
"""What is left of an update after a round."""


def replayed(state: FedHAWAutoState, current: Round) -> tuple[tuple[Client, ...], Array | None]:
    """The clients lost in this round whose last update is known, and (L, P) what to replay.

    What a client sent while it was not trusted is never replayed.
    """
    if state.previous is None or state.arrived is None:
        return (), None
    answered = {
        name
        for name, here, weight in zip(state.clients, state.arrived, state.weights, strict=True)
        if here and weight > 0
    }
    refused = set(current.refused_clients)
    strangers = {name for name in refused if not state.evidence.knows(name)}
    gone = {*state.distrusted, *strangers}
    absent = tuple(
        name
        for name, here in zip(current.clients, current.received, strict=True)
        if not here and name not in gone and (name in answered or name in state.absent)
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
            most = _usual_length(state.evidence, name, refused)
            length = math.sqrt(products(row)[0, 0])
            if length > most:
                row *= most / length
        else:
            assert state.replayed is not None
            row[:] = like(W, state.replayed[state.absent.index(name)])
        row *= REPLAY
    return absent, updates


def _usual_length(evidence: Evidence, client: Client, refused: Collection[Client]) -> float:
    """l_k; infinite where nothing is known."""
    if client not in evidence.lengths:
        return math.inf
    own, everybody = evidence.lengths[client], evidence.lengths.values()
    most = float(np.median([*everybody])) if client in refused else math.inf
    return min(own, most, evidence.parole_length if client in evidence.parole else math.inf)

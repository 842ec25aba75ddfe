"""FedHAW-auto: hypergradient aggregation with no learning rate to set.

The global model is exp(gamma) (w + a Delta): gamma scales it as in FedHAW, and a, the server's
step, is learnt too. Their hypergradients are the letter's; each is divided by the lengths of its
factors, so that only an angle is left. Every number below is free of the unit of the model, of the
loss and of the clients' learning rate:

    F       = sum_k p_k (w_k - w)                    over what arrived, p_k = N_k / N
    Delta   = F + sum_{k lost} p_k m_k               m_k: the client's last update, replayed
    a'      = a exp(STEP cos(F, Delta(t-1)))         at least 0.2; at most 20, and at most
                                                     RADIUS |w| / |Delta| where that is above 1
    gamma'  = LEAK gamma + GAIN cos(Delta, w)        so |gamma| <= GAIN / (1 - LEAK)
    w(t+1)  = exp(gamma') (w + a' Delta)

a starts at 1 and gamma at 0: round 0 is FedAvg. dw(t)/d(log a) points along Delta(t-1) and F
against the gradient, so the server steps further while consecutive updates agree and less far once
they turn back. gamma is momentum along the model itself; without the leak it would be an
undamped oscillator (docs/rules/fedhaw-auto.md derives both).

Two limits are for clients that learn far too fast, where angles say little: the server goes further
than FedAvg only within RADIUS, and all its scaling together stays within SCALING_LIMIT.

A lost client is replaced by its last update, m_k, times REPLAY for every round it stays away: its
data keep their say through an outage of a few rounds, and a client that never returns fades out.
The agreement is measured on F alone, because a replayed update agrees with itself.

The weights stay at the clients' shares: in no run of the letter's experiments did learning them
matter, and without it the matrix of models is read once, not three times.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from fedhaw.rules.base import Array, Client, Round, Vector, namespace
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.reductions import (
    blend,
    combine,
    like,
    products,
    subtract,
    summing_to_one,
)

STEP = 0.1
STEP_LIMITS = (0.2, 20.0)
GAIN = 0.15
LEAK = 0.7
REPLAY = 0.9
RADIUS = 0.05
SCALING_LIMIT = math.log(5.0)


@dataclass(frozen=True)
class FedHAWAutoState:
    """The two coefficients, and the last round's updates.

    Attributes:
        gamma: log of the model's scaling.
        scaling: sum of gamma over the rounds so far.
        step: a, the server's step.
        delta: (P,) the last aggregated update; None before the first round.
        sent: (P,) the model the last round's clients started from, as it was given.
        previous: (K, P) what came back from them, as it was given.
        arrived: (K,) whose upload arrived.
        absent: the clients whose last update is still replayed.
        replayed: (L, P) those updates; None when there are none.
        clients: who took part in the last round.
        weights: (K,) their shares of the data.
        note: why the coefficients were held in the last round, or None.
    """

    gamma: float = 0.0
    scaling: float = 0.0
    step: float = 1.0
    delta: Array | None = None
    sent: Array | None = None
    previous: Array | None = None
    arrived: Array | None = None
    absent: tuple[Client, ...] = ()
    replayed: Array | None = None
    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))
    note: str | None = None


@dataclass(frozen=True)
class FedHAWAuto:
    """FedHAW with nothing to tune: the same rule for every model, optimiser and loss rate."""

    def init(self) -> FedHAWAutoState:
        """The state before the first round."""
        return FedHAWAutoState()

    @np.errstate(over="ignore", invalid="ignore")
    def aggregate(self, state: FedHAWAutoState, round: Round) -> tuple[Array, FedHAWAutoState]:  # noqa: A002
        """The next global model, (P,), and the coefficients that made it."""
        if round.nothing_arrived:
            return unchanged(round), state
        w, W, p = round.global_model, round.client_models, round.shares
        # The row of a lost upload holds w: it adds nothing to the mean of the updates.
        fresh = combine(summing_to_one(p, W), W)
        subtract(fresh, w)
        absent, replayed = _replayed(state, round)
        delta = fresh
        if replayed is not None:
            share_of = dict(zip(round.names, p, strict=True))
            delta = fresh + combine(np.array([share_of[client] for client in absent]), replayed)

        gamma, step, note = state.gamma, state.step, None
        before = fresh if state.delta is None else like(fresh, state.delta)
        inner = products(w, fresh, before, delta)
        if not np.isfinite(inner).all():
            checked(fresh, round)
            note = "an update is too large for its square; the coefficients stayed"
        elif state.delta is not None:
            length, moved = math.sqrt(inner[0, 0]), math.sqrt(inner[3, 3])
            least, most = STEP_LIMITS
            if moved > 0:
                most = min(most, max(1.0, RADIUS * length / moved))
            step = min(max(step * math.exp(STEP * _cosine(inner, 1, 2)), least), most)
            gamma = LEAK * gamma + GAIN * _cosine(inner, 3, 0)
            gamma = min(max(gamma, -SCALING_LIMIT - state.scaling), SCALING_LIMIT - state.scaling)
        scale = math.exp(gamma)
        model = blend(scale, w, scale * step, delta)
        if note is not None:
            checked(model, round)
        return model, FedHAWAutoState(
            gamma=gamma,
            scaling=state.scaling + gamma,
            step=step,
            delta=delta,
            sent=w,
            previous=W,
            arrived=round.arrived,
            absent=absent,
            replayed=replayed,
            clients=round.names,
            weights=p,
            note=note,
        )


def _replayed(
    state: FedHAWAutoState,
    round: Round,  # noqa: A002
) -> tuple[tuple[Client, ...], Array | None]:
    """The clients lost in this round whose last update is known, and (L, P) what to replay."""
    lost = [name for name, here in zip(round.names, round.arrived, strict=True) if not here]
    if not lost or state.previous is None or state.arrived is None:
        return (), None
    W = round.client_models
    rows = dict(zip(state.clients, range(len(state.clients)), strict=True))
    waiting = dict(zip(state.absent, range(len(state.absent)), strict=True))
    updates: dict[Client, Array] = {}
    for name in lost:
        if name in rows and state.arrived[rows[name]]:
            updates[name] = like(W, state.previous[rows[name]]) - like(W, state.sent)
        elif name in waiting and state.replayed is not None:
            updates[name] = like(W, state.replayed[waiting[name]])
    if not updates:
        return (), None
    return tuple(updates), REPLAY * namespace(W).stack(list(updates.values()))


def _cosine(inner: Vector, i: int, j: int) -> float:
    """Of the angle between vectors i and j; 0 when one of them is 0 and points nowhere."""
    lengths = math.sqrt(inner[i, i]) * math.sqrt(inner[j, j])
    return float(inner[i, j]) / lengths if lengths > 0 else 0.0

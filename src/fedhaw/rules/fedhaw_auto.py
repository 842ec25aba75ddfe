"""FedHAW-auto: hypergradient aggregation with no learning rate to set.

The global model is exp(gamma) (w + a Delta): gamma scales it as in FedHAW, and a, the server's
step, is learnt too. Their hypergradients are the letter's; each is divided by the lengths of its
factors, so that only an angle is left. But for RADIUS, every number below is free of the unit of
the model, of the loss and of the clients' learning rate:

    F       = sum_k p_k (w_k - w)                    over what arrived, p_k = N_k / N
    Delta   = F + sum_{k lost} p_k m_k               m_k: the client's last update, replayed
    c       = cos(Delta, w)
    trust   = max(0, 1 - 2 |c|)
    A       = cos(F, Delta(t-1))                     multiplied by the trust where it is above 0
    a'      = a exp(STEP A)                          at least 0.2; at most 20, and at most
                                                     RADIUS |w| / |Delta| where that is above 1
    gamma'  = LEAK gamma + GAIN trust c              |gamma| <= GAIN / 8 / (1 - LEAK)
    w(t+1)  = exp(gamma') (w + a' Delta)

a starts at 1 and gamma at 0: round 0 is FedAvg. dw(t)/d(log a) points along Delta(t-1) and F
against the gradient, so the server steps further while consecutive updates agree and less far once
they turn back. gamma is momentum along the model itself; without the leak it would be an
undamped oscillator (docs/rules/fedhaw-auto.md derives both).

What is left is for clients that learn far too fast, where angles say little. Updates that lie along
the model, within 60 degrees, inflate it and teach it nothing: the trust goes to 0. The server goes
further than FedAvg only within RADIUS, and all its scaling together stays within SCALING_LIMIT.

A lost client is replaced by its last update, m_k, times REPLAY for every round it stays away: its
data keep their say through an outage of a few rounds, and a client that never returns fades out.
The agreement is measured on F alone, because a replayed update agrees with itself.

The weights stay at the clients' shares: in no run of the letter's experiments did learning them
matter, and without it the matrix of models is read once, not three times.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from fedhaw.rules.base import Array, Client, Metrics, Round, Vector, namespace
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import (
    blend,
    combine,
    like,
    products,
    subtract,
    summing_to_one,
)

STEP = 0.1
STEP_LIMITS = (0.2, 20.0)
GAIN = 0.25
LEAK = 0.7
REPLAY = 0.9
RADIUS = 0.05
SCALING_LIMIT = math.log(5.0)
ROUNDING = 4.0


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

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"gamma": self.gamma, "step": self.step}


@dataclass(frozen=True)
class FedHAWAuto:
    """FedHAW with nothing to tune: the same rule for every model, optimiser and loss rate."""

    def init(self) -> FedHAWAutoState:
        """The state before the first round."""
        return FedHAWAutoState()

    @np.errstate(over="ignore", invalid="ignore")
    def aggregate(self, state: FedHAWAutoState, current: Round) -> tuple[Array, FedHAWAutoState]:
        """The next global model, (P,), and the coefficients that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, W, p = current.global_model, current.client_models, current.shares
        # The row of a lost upload holds w: it adds nothing to the mean of the updates.
        fresh = combine(summing_to_one(p, W), W)
        subtract(fresh, w)
        absent, replayed = _replayed(state, current)
        delta = fresh
        if replayed is not None:
            share_of = dict(zip(current.names, p, strict=True))
            delta = fresh + combine(np.array([share_of[client] for client in absent]), replayed)

        gamma, step, note = 0.0, state.step, None
        before = fresh if state.delta is None else like(fresh, state.delta)
        inner = products(w, fresh, before, delta)
        if not np.isfinite(inner).all():
            checked(fresh, current)
            note = "an update is too large for its square; FedHAW-auto did not scale the model"
        elif state.delta is not None:
            step, gamma = _coefficients(state, inner, float(namespace(w).finfo(w.dtype).eps))
        scale = math.exp(gamma)
        model = blend(scale, w, scale * step, delta)
        if note is not None:
            checked(model, current)
        return model, FedHAWAutoState(
            gamma=gamma,
            scaling=state.scaling + gamma,
            step=step,
            delta=delta,
            sent=w,
            previous=W,
            arrived=current.arrived,
            absent=absent,
            replayed=replayed,
            clients=current.names,
            weights=p,
            note=note,
        )


def _coefficients(state: FedHAWAutoState, inner: Vector, epsilon: float) -> tuple[float, float]:
    """A step of a and of gamma, from the inner products of w, F, Delta(t-1) and Delta."""
    length, fresh, before, delta = np.sqrt(np.diag(inner))
    # Less than this is what rounding left of equal models, and points nowhere.
    noise = ROUNDING * epsilon * length
    agreement = inner[1, 2] / (fresh * before) if min(fresh, before) > noise else 0.0
    growth = inner[3, 0] / (delta * length) if delta > noise and length > 0 else 0.0
    trust = max(0.0, 1.0 - 2.0 * abs(growth))

    least, most = STEP_LIMITS
    if delta > 0:
        most = min(most, max(1.0, RADIUS * length / delta))
    step = state.step * math.exp(STEP * min(agreement, trust * agreement))
    gamma = LEAK * state.gamma + GAIN * trust * growth
    gamma = min(max(gamma, -SCALING_LIMIT - state.scaling), SCALING_LIMIT - state.scaling)
    return float(min(max(step, least), most)), float(gamma)


def _replayed(
    state: FedHAWAutoState,
    current: Round,
) -> tuple[tuple[Client, ...], Array | None]:
    """The clients lost in this round whose last update is known, and (L, P) what to replay."""
    if state.previous is None or state.arrived is None:
        return (), None
    answered = {name for name, here in zip(state.clients, state.arrived, strict=True) if here}
    absent = tuple(
        name
        for name, here in zip(current.names, current.arrived, strict=True)
        if not here and (name in answered or name in state.absent)
    )
    if not absent:
        return (), None
    W = current.client_models
    sent = like(W, state.sent)
    replayed = namespace(W).empty_like(W[: len(absent)])
    for row, name in zip(replayed, absent, strict=True):
        if name in answered:
            row[:] = like(W, state.previous[state.clients.index(name)])
            row -= sent
        else:
            assert state.replayed is not None
            row[:] = like(W, state.replayed[state.absent.index(name)])
        row *= REPLAY
    return absent, replayed

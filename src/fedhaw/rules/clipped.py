"""Norm clipping: no client's update is longer than a limit, then any rule.

    Delta_k = w_k - w
    w_k'    = w + Delta_k min(1, M / |Delta_k|)
    w(t+1)  = what the rule makes of the w_k'

M is the median length of the round's updates unless it is given. A lost upload, and a client that
sends the global model back, have no update: they are not in the median and go to the rule as they
are, which does with a lost upload what it always does.

Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.base import (
    Array,
    Client,
    InvalidRule,
    Metrics,
    Round,
    Rule,
    Vector,
    check_number,
    namespace,
)
from fedhaw.rules.blocks import column_blocks, each
from fedhaw.rules.fedavg import FedAvg
from fedhaw.rules.guards import unchanged
from fedhaw.rules.lengths import shortened_note
from fedhaw.rules.passes import native, update_squares
from fedhaw.rules.private import holds_privacy
from fedhaw.rules.within import StateAround


@dataclass(frozen=True)
class ClippedState(StateAround):
    """The state of the rule within, and the last round's limit.

    Attributes:
        inner: the state of the rule within.
        limit: M, the longest update that was let through; 0 before the first round.
        shortened: whose updates were longer.
    """

    limit: float = 0.0
    shortened: tuple[Client, ...] = ()

    @property
    def metrics(self) -> Metrics:
        """What the rule within learnt, the limit, and how many updates were shortened."""
        return {**self.inner.metrics, "limit": self.limit, "shortened": float(len(self.shortened))}

    @property
    def note(self) -> str | None:
        """Whose updates were shortened, and what the rule within has to say; None for nothing."""
        return "; ".join(filter(None, (shortened_note(self.shortened), super().note))) or None


@listed(__name__, "clipped", "Clipped")
@dataclass(frozen=True)
class Clipped:
    """Any rule, on updates of limited length.

    Attributes:
        rule: the rule within.
        limit: M, in the unit of the model; None for the median length of the round's updates.
    """

    rule: Rule[Any] = field(default_factory=FedAvg)
    limit: float | None = None

    def __post_init__(self) -> None:
        if not callable(getattr(self.rule, "aggregate", None)):
            raise InvalidRule(f"Clipped needs a rule to wrap, such as FedAvg(); got {self.rule!r}.")
        if holds_privacy(self.rule):
            raise InvalidRule(
                "Private cuts updates to its own clip, and must be around everything else for what "
                "it promises; leave Clipped out."
            )
        if self.limit is not None:
            check_number("Clipped", "limit", self.limit, above=0)

    def without_replay(self) -> "Clipped":
        """The same over the rule within as it is without replay, if it has any."""
        within = getattr(self.rule, "without_replay", None)
        return self if within is None else replace(self, rule=within())

    def init(self) -> ClippedState:
        """The state before the first round."""
        return ClippedState(self.rule.init())

    def aggregate(self, state: ClippedState, current: Round) -> tuple[Array, ClippedState]:
        """The next global model, (P,), and the state of the rule that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, W = current.global_model, current.client_models
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(update_squares(w, W))
        moved = lengths[lengths > 0]  # neither 0 nor NaN
        limit = self.limit or (float(np.median(moved)) if len(moved) else 0.0)
        longer = lengths > limit
        if longer.any():
            factors = np.divide(limit, lengths, out=np.ones_like(lengths), where=longer)
            current = replace(current, client_models=_shortened(w, W, factors))
        model, inner = self.rule.aggregate(state.inner, current)
        names = tuple(current.clients[int(k)] for k in np.flatnonzero(longer))
        return model, ClippedState(inner, limit, names)


def _shortened(w: Array, W: Array, factors: Vector) -> Array:
    """(K, P) w + factors_k (W_k - w); a copy, for the round's own matrix is the caller's."""
    shorter = namespace(W).empty_like(W)
    into, w, W = native(shorter), native(w), native(W)
    xp = namespace(W)

    def part(block: slice) -> None:
        for row, model, factor in zip(into, W, factors.tolist(), strict=True):
            made = row[block]
            if factor == 1:
                made[:] = model[block]
            else:
                # An infinity times 0 is NaN, which the rule within finds and names.
                xp.subtract(model[block], w[block], out=made)
                made *= factor
                made += w[block]

    each(W, part, column_blocks(W, written=True))
    return shorter

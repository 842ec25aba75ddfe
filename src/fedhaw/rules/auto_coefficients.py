"""The momentum and the scaling of FedHAW-auto, learnt of angles; its equations say how."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedhaw.rules.auto_pace import Pace
from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Vector

RATE = 0.3
OFFSET = 0.2
MOMENTUM_LIMIT = 0.9
MEMORY = 0.8
THETA_LIMITS = (0.0, math.log(MOMENTUM_LIMIT / (1 - MOMENTUM_LIMIT)))
RADIUS = 0.07
GAIN = 0.25
LEAK = 0.7
SCALING_LIMIT = math.log(2.0)
LEAST_STEP = 0.25
RETURN = 200
ROUNDING = 4.0

Part = Literal["replay", "momentum", "gamma", "trust"]
"""A part of the rule that can be left out."""


class Shares(NamedTuple):
    """The shares of the data behind what was received, and behind what was in time."""

    received: float
    in_time: float


@dataclass(frozen=True)
class Coefficients:
    """What a round learnt; the state has these by the same names, but for the last two.

    Attributes:
        step: how much of v the model takes.
        back: r, how much of the scaling is given back.
    """

    gamma: float
    theta: float
    momentum: float
    agreement: float
    pace: Pace
    start: float
    step: float = 1.0
    back: float = 0.0


def coefficients(
    state: FedHAWAutoState, inner: Vector, shares: Shares, epsilon: float, without: Part | None
) -> Coefficients:
    """A step of theta and of gamma.

    Args:
        state: what was learnt so far.
        inner: (4, 4) the inner products of w, F, v(t-1) and d.
        shares: how much of the data is behind them.
        epsilon: the relative rounding of the model's numbers.
        without: the part of the rule that is left out.
    """
    length, fresh, before, delta = np.sqrt(np.diag(inner)).tolist()
    pace = state.pace.after(fresh**2)
    if not state.clients:
        return Coefficients(0.0, 0.0, 0.0, 0.0, pace, length if length >= delta else 0.0)
    # Less than this is what rounding left of equal models, and points nowhere.
    noise = ROUNDING * epsilon * length
    gamma, theta, momentum, agreement = LEAK * state.gamma, state.theta, 0.0, state.agreement
    step = 1.0
    if state.velocity is not None and min(fresh, before) > noise:
        A = float(inner[1, 2]) / (fresh * before)
        agreement = MEMORY * agreement + (1.0 - MEMORY) * A
        least, most = THETA_LIMITS
        theta = min(max(theta + RATE * (A + OFFSET), least), most)
        share, timely = shares.in_time, shares.in_time / shares.received
        aimed = timely * share ** _staleness(agreement) / (1.0 + math.exp(-theta))
        reach = share * RADIUS * (state.start or length)
        far = fresh / reach if reach > 0 else 1.0  # a model of zeros has no length to compare with
        aside = 1.0 - abs(A)
        hurry = aside * ((1.0 - MOMENTUM_LIMIT) * pace.haste)
        momentum = max(0.0, min(aimed, 1.0 - max(aside * far, hurry)))
        step = max(LEAST_STEP, 1.0 / max(1.0, hurry))
    if without == "momentum":
        momentum, step = 0.0, 1.0
    if delta > noise and length > 0:
        growth = float(inner[3, 0]) / (delta * length)
        gamma += GAIN * max(0.0, 1.0 - 2.0 * abs(growth)) * growth
    gamma = min(max(gamma, -SCALING_LIMIT - state.scaling), SCALING_LIMIT - state.scaling)
    if without == "gamma":
        gamma = 0.0
    back = pace.calm * (state.scaling - state.given_back) / RETURN
    return Coefficients(gamma, theta, momentum, agreement, pace, state.start, step, back)


def _staleness(agreement: float) -> float:
    """The power of the share in beta: 1/2 where updates do not agree, none where they do."""
    return 0.5 * (1.0 - min(max(2.0 * agreement, 0.0), 1.0))

"""How far gamma may stretch a model, or shrink it.

gamma acts in every round, so even a small one that is held makes a model too long to train in the
end, or nothing. What it adds up to says little: a gamma below 0 that takes back, round for round,
what training adds is weight decay at work. So the guard looks at the model itself, beside the
length r that training accounts for. With |w| the length of the model that was sent out and |a| that
of the average that came back, r follows the training, but only towards what the model is:

    r' = r |a| / |w|,  held between r and |a|

Without gamma, r is the length of the model. Where gamma takes back what training adds, both stay.
Where gamma stretches the model and training does not ask for more, r stays and the model leaves it,
until it is `limit` times as long: gamma then goes no further. The same holds for shrinking.
"""

import math
from typing import NamedTuple

import numpy as np

from fedhaw.rules.base import InvalidRule, Vector, check_number

IN_ONE_ROUND = 2.0
"""A step to an exp(gamma) beyond this, or below its inverse, says that something else went wrong;
in the letter's experiments exp(gamma) stays within [0.7, 1.7]."""


def check_limit(rule: str, limit: object) -> None:
    """A check of a limit: what is neither None nor a number above 1 is refused."""
    if limit is None:
        return
    try:
        check_number(rule, "guard", limit, above=1)
    except InvalidRule as error:
        raise InvalidRule(f"{error} None switches the guard off.") from error


def trained_length(before: float, w: float, average: float) -> float:
    """The length that training accounts for, after one more round.

    Args:
        before: the same a round ago; 0 if nothing is known yet.
        w: the length of the model that was sent out.
        average: the length of the average of what came back.
    """
    if not math.isfinite(average) or not w > 0:
        return before
    before = before or w
    least, most = sorted((before, average))
    return min(max(before * (average / w), least), most)


class Step(NamedTuple):
    """A step of both coefficients.

    Attributes:
        gamma: before the step.
        new_gamma: after it.
        lambdas: (K,) before it.
        new_lambdas: (K,) after it.
    """

    gamma: float
    new_gamma: float
    lambdas: Vector
    new_lambdas: Vector


def guarded(
    step: Step, limit: float, trained: float, average: float
) -> tuple[float, Vector, str | None]:
    """What a guard leaves of a step: gamma, (K,) lambda, and a sentence if it is less than all.

    Args:
        step: of the coefficients.
        limit: how many times longer or shorter than `trained` the model may become.
        trained: the length that training accounts for.
        average: the length of the average, before gamma.
    """
    gamma, lambdas, note = step.new_gamma, step.new_lambdas, None
    finite = np.isfinite(lambdas) | (lambdas == step.lambdas)  # who has no data stays at -inf
    if not math.isfinite(gamma) or not finite.all():
        note = "the hypergradient is not finite; coefficients stayed"
    elif abs(gamma) > math.log(min(IN_ONE_ROUND, limit)):
        note = f"a step to gamma = {gamma:.4g} is out of bounds; coefficients stayed"
    if note is not None:
        gamma, lambdas = step.gamma, step.lambdas
    allowed = _held_back(gamma, limit, trained, average)
    if allowed != gamma:
        note = (
            f"gamma = {gamma:.4g} would take the model beyond {limit:g} times the length that its "
            f"training accounts for; it is {allowed:.4g}"
        )
    return allowed, lambdas, note


def _held_back(gamma: float, limit: float, trained: float, average: float) -> float:
    """As much of gamma as keeps exp(gamma) `average` within `limit` times `trained`.

    The guard only holds gamma back: where even the average lies beyond, gamma is 0.
    """
    if not trained > 0 or not 0 < average < math.inf:
        return gamma
    least, most = (math.log(trained / average) + side * math.log(limit) for side in (-1, 1))
    return min(max(gamma, min(0.0, least)), max(0.0, most))

"""Whether the letter's number lies within the spread of ours.

The letter reports single runs; we report the mean m and the sample standard deviation s over n
seeds (s needs n >= 2). The letter's number L lies *within* the spread when

    |m - L| <= max(2 s, FLOOR)

and otherwise ours is *above* (m > L) or *below* it. The floor, half a percentage point, is what
other random streams, another PyTorch and the choice of the last round alone move an accuracy by; it
also stands in for s where there is only one seed.
"""

import math
from typing import Literal, TypeAlias

FLOOR = 0.5
"""In percentage points."""

Verdict: TypeAlias = Literal["within", "above", "below", "no number"]


def spread(std: float) -> float:
    """How far the letter's number may lie from our mean and still be within.

    Args:
        std: sample standard deviation over seeds, in percentage points; NaN for one seed.
    """
    return max(2 * std, FLOOR) if math.isfinite(std) else FLOOR


def verdict(mean: float, std: float, letter: float | None) -> Verdict:
    """Ours beside the letter's number, all in percentage points."""
    if letter is None or not math.isfinite(mean):
        return "no number"
    if abs(mean - letter) <= spread(std):
        return "within"
    return "above" if mean > letter else "below"

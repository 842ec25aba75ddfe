"""Looks for numbers that are not finite."""

import math

from fedhaw.rules.base import Array, namespace
from fedhaw.rules.blocks import quietly


@quietly
def is_finite(vector: Array) -> bool:
    """Whether no element is NaN or infinite; a sum of squares tells for all but huge numbers."""
    if math.isfinite(float(vector @ vector)):
        return True
    xp = namespace(vector)
    return bool(xp.all(xp.isfinite(vector)))


def non_finite_rows(W: Array) -> list[int]:
    """Which rows hold a NaN or an infinity."""
    xp = namespace(W)
    return [k for k in range(W.shape[0]) if not bool(xp.all(xp.isfinite(W[k])))]

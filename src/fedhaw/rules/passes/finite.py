"""Looks for numbers that are not finite."""

import math

from fedhaw.rules.base import Array, namespace
from fedhaw.rules.passes.arrays import native
from fedhaw.rules.passes.vectors import dot


def is_finite(vector: Array) -> bool:
    """Whether no element is NaN or infinite; a sum of squares tells for all but huge numbers."""
    if math.isfinite(dot(vector, vector)):
        return True
    vector = native(vector)
    xp = namespace(vector)
    return bool(xp.all(xp.isfinite(vector)))


def non_finite_rows(W: Array) -> list[int]:
    """Which rows hold a NaN or an infinity."""
    return [k for k in range(W.shape[0]) if not is_finite(W[k])]

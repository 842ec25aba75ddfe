"""What the coefficients of a formula are, and where they begin."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedhaw.rules.base import InvalidRule, Vector, check_number
from fedhaw.rules.logits import Joining

Start: TypeAlias = Mapping[str, ArrayLike | Joining]
"""By name: a number or an array that all clients share, or where each client's own begins."""


def shared(start: Start) -> dict[str, Vector]:
    """The coefficients that all clients share, in float64."""
    return {
        name: np.asarray(value, dtype=np.float64)
        for name, value in start.items()
        if not callable(value)
    }


def per_client(start: Start) -> dict[str, Joining]:
    """The coefficients that every client has one of."""
    return {name: value for name, value in start.items() if callable(value)}


def check_coefficients(
    start: Start, rates: Mapping[str, float], limits: Mapping[str, tuple[float, float]]
) -> None:
    """A check: each coefficient has a rate, each rate a coefficient, and no limits bar a start."""
    if set(start) != set(rates) or not start:
        raise InvalidRule(
            "HypergradientRule needs the same names in start and rates, at least one; got "
            f"{sorted(start)} and {sorted(rates)}."
        )
    for name, rate in rates.items():
        check_number("HypergradientRule", f"rates[{name!r}]", rate, at_least=0)
    for name in limits:
        if name not in start:
            raise InvalidRule(f"HypergradientRule's limits name {name!r}, which has no start.")
    for name, given in start.items():
        if callable(given):
            continue
        try:
            value = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidRule(f"The start of {name!r} is not an array ({error}).") from error
        low, high = limits.get(name, (-np.inf, np.inf))
        if not np.all(np.isfinite(value) & (low <= value) & (value <= high)):
            raise InvalidRule(
                f"The start of {name!r} must be finite and within its limits {low:g} and {high:g}; "
                f"got {given!r}."
            )

"""What every uplink is, and the random numbers that all are made of."""

from collections.abc import Sequence
from numbers import Real
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError, shown

Lost: TypeAlias = NDArray[np.bool_]
Rounds: TypeAlias = NDArray[np.int64]

PROBABILITIES, LOSSES, STARTS, STEPS, DELAYS = range(5)
"""Streams of random numbers that must not meet."""


class InvalidUplink(FedhawError, ValueError):
    """An uplink that cannot be: a probability out of range, or a trace that cannot be read."""


@runtime_checkable
class Uplink(Protocol):
    """A decision about which uploads get lost; must be a pure function of its arguments."""

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """(len(clients),) True where the client's upload does not arrive in this round."""


@runtime_checkable
class DelayingUplink(Uplink, Protocol):
    """An uplink over which some uploads come in a later round."""

    def delays(self, seed: int, round_index: int, clients: Sequence[int]) -> Rounds:
        """(len(clients),) how many rounds later each upload comes that `lost` names; 0: never."""


def uniforms(
    seed: int, stream: int, round_index: int, clients: Sequence[int]
) -> NDArray[np.float64]:
    """(len(clients),) numbers in [0, 1), each fixed by (seed, stream, round, client)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, round_index))
    # The k-th number of a stream is client k's, however many clients are asked about.
    draws = np.random.Generator(np.random.PCG64(sequence)).random(max(clients, default=-1) + 1)
    return draws[np.asarray(clients, dtype=np.int64)]


def check_probability(name: str, value: float) -> None:
    """A check: what is no probability is refused, by its name."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InvalidUplink(f"{name} is {shown(value)}; it must be a probability, 0 to 1.")

"""Uploads that come late, where the letter's uplink would lose them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhaw.listing import listed
from fedhaw.uplink.base import DELAYS, InvalidUplink, Lost, Rounds, uniforms
from fedhaw.uplink.letter import LetterUplink


@dataclass(frozen=True)
class LateUplink:
    """The letter's uplink, whose losses arrive after all.

    An upload misses its round exactly where `LetterUplink(p_e)` loses it, so that the two can be
    compared. It comes 1, 2, ... rounds later: the number is geometric with mean `delay`, drawn for
    every upload.

    Attributes:
        p_e: the largest probability of a client's to be late, 0 to 1.
        delay: how many rounds late an upload is on average, at least 1.
    """

    p_e: float
    delay: float = 3.0

    def __post_init__(self) -> None:
        LetterUplink(self.p_e)
        if not 1 <= self.delay < math.inf:
            raise InvalidUplink(f"delay is {self.delay}; what is late is so by 1 round or more.")

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        return LetterUplink(self.p_e).lost(seed, round_index, clients)

    def delays(self, seed: int, round_index: int, clients: Sequence[int]) -> Rounds:
        """The same as in `DelayingUplink`."""
        if self.delay == 1:
            return np.ones(len(clients), dtype=np.int64)
        draws = uniforms(seed, DELAYS, round_index, clients)
        # P(later than n rounds) = (1 - 1/delay)^n
        later = np.floor(np.log1p(-draws) / math.log1p(-1 / self.delay))
        return 1 + later.astype(np.int64)


@listed(__name__, "late", "as letter, but they come some rounds later")
def late(loss_rate: float, burst: float) -> LateUplink | None:
    """The uplink by its name; None is one that never fails."""
    return LateUplink(loss_rate, burst) if loss_rate else None

"""Losses that come and go by the hour, for all at once, after Xiang et al. (2024)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedhaw.listing import listed
from fedhaw.uplink.base import (
    LOSSES,
    PROBABILITIES,
    InvalidUplink,
    Lost,
    check_probability,
    uniforms,
)

Hours: TypeAlias = Literal["sine", "steps", "cut"]
"""How the availability of all clients changes over a day of `DAY` rounds."""

DAY = 20
CUT = 0.25


@listed(__name__, "hourly", "all clients at once")
@dataclass(frozen=True)
class HourlyUplink:
    """An uplink that is good and bad by the hour, for all clients at once.

    Client k is available with probability (1 - p_k) f(t), where p_k ~ Uniform(0, loss_rate) is
    drawn once, as in the letter's uplink, and f goes round every 20 rounds:

    - sine: f(t) = 0.7 + 0.3 sin(2 pi t / 20).
    - steps: 1 in the first ten rounds, 0.4 in the other ten.
    - cut: as sine, but who would be available with less than 0.25 is not at all.

    Attributes:
        loss_rate: the largest loss probability of a client at the best hour, 0 to 1.
        hours: "sine", "steps" or "cut".
    """

    loss_rate: float
    hours: Hours = "sine"

    def __post_init__(self) -> None:
        check_probability("loss_rate", self.loss_rate)
        if self.hours not in get_args(Hours):
            raise InvalidUplink(f"hours is {self.hours!r}; it must be sine, steps or cut.")

    def availability(
        self, seed: int, round_index: int, clients: Sequence[int]
    ) -> NDArray[np.float64]:
        """(len(clients),) the probability that each client's upload arrives in this round."""
        hour = round_index % DAY
        sine = 0.7 + 0.3 * math.sin(2 * math.pi * hour / DAY)
        factor = sine if self.hours != "steps" else 1.0 if hour < DAY / 2 else 0.4
        base = 1 - self.loss_rate * uniforms(seed, PROBABILITIES, 0, clients)
        available = factor * base
        return np.where(available < CUT, 0.0, available) if self.hours == "cut" else available

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        arrives = self.availability(seed, round_index, clients)
        return uniforms(seed, LOSSES, round_index, clients) >= arrives

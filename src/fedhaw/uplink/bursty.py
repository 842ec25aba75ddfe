"""Losses that come in bursts, after Gilbert (1960) and Elliott (1963)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedhaw.listing import listed
from fedhaw.uplink.base import (
    LOSSES,
    STARTS,
    STEPS,
    InvalidUplink,
    Lost,
    check_probability,
    uniforms,
)


@dataclass(frozen=True)
class BurstyUplink:
    """The Gilbert-Elliott channel: every client's uplink is good or bad, and stays so for a while.

    Between rounds a good uplink turns bad with probability `to_bad` and a bad one turns good with
    probability `to_good`; bad phases last 1 / to_good rounds on average. Each client starts in the
    long-run mixture, in which the share of bad uplinks is to_bad / (to_bad + to_good).

    Attributes:
        to_bad: probability of turning bad, 0 to 1.
        to_good: probability of turning good again, 0 to 1.
        loss_when_good: loss probability of a good uplink.
        loss_when_bad: loss probability of a bad uplink.
    """

    to_bad: float
    to_good: float
    loss_when_good: float = 0.0
    loss_when_bad: float = 1.0

    def __post_init__(self) -> None:
        for name in ("to_bad", "to_good", "loss_when_good", "loss_when_bad"):
            check_probability(name, getattr(self, name))
        if self.to_bad + self.to_good == 0:
            raise InvalidUplink("to_bad and to_good are both 0; at least one must be above 0.")

    @classmethod
    def bursts(cls, loss_rate: float, length: float) -> Self:
        """The channel that loses `loss_rate` of all uploads in bursts of mean `length` rounds.

        Raises:
            InvalidUplink: no such channel exists; a burst is at least 1 round long, and bursts that
                short cannot make up a large share.
        """
        check_probability("loss_rate", loss_rate)
        if loss_rate == 1 or not 1 <= length < math.inf:
            raise InvalidUplink(
                f"Bursts of {length} rounds with a loss rate of {loss_rate} are impossible; give a "
                "rate below 1 and a length of at least 1."
            )
        to_bad = loss_rate / (1 - loss_rate) / length
        if to_bad > 1:
            raise InvalidUplink(
                f"Bursts of {length:g} rounds cannot lose {loss_rate:g} of all uploads; give a "
                f"length of at least {loss_rate / (1 - loss_rate):.3g}."
            )
        return cls(to_bad, 1 / length)

    def bad(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """(len(clients),) whose uplink is bad in this round.

        The chain is driven by one uniform number u per round and client: from a good state it goes
        to bad if u < to_bad, from a bad one it stays bad if u < 1 - to_good. Where u is below or
        above both, the next state does not depend on the one before, so it is enough to look back
        to the latest such round: about 1 / (to_bad + to_good) rounds, however long the run is.
        """
        low, high = sorted((self.to_bad, 1 - self.to_good))
        flips_between = self.to_bad > 1 - self.to_good
        state = np.zeros(len(clients), dtype=np.bool_)
        flipped = np.zeros(len(clients), dtype=np.bool_)
        unknown = np.ones(len(clients), dtype=np.bool_)
        for step in range(round_index, 0, -1):
            u = uniforms(seed, STEPS, step, clients)
            decided = unknown & ((u < low) | (u >= high))
            state[decided] = (u < low)[decided] ^ flipped[decided]
            unknown &= ~decided
            if not unknown.any():
                return state
            flipped ^= unknown & flips_between
        share = self.to_bad / (self.to_bad + self.to_good)
        started_bad = uniforms(seed, STARTS, 0, clients) < share
        state[unknown] = started_bad[unknown] ^ flipped[unknown]
        return state

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        bad = self.bad(seed, round_index, clients)
        probability = np.where(bad, self.loss_when_bad, self.loss_when_good)
        return uniforms(seed, LOSSES, round_index, clients) < probability


@listed(__name__, "bursty", "Gilbert-Elliott")
def bursty(loss_rate: float, burst: float) -> BurstyUplink | None:
    """The uplink by its name; None is one that never fails."""
    return BurstyUplink.bursts(loss_rate, burst) if loss_rate else None

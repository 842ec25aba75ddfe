"""Which uploads arrive.

Whether client k's upload gets lost in round t depends on (seed, t, k) and on nothing else: neither
on the server's rule, nor on the engine, nor on who else takes part. So all rules of a comparison
see the same losses, and a resumed run sees those of one that was never interrupted; for that no
model of the uplink keeps any state.

- `LetterUplink`: each client has its own loss probability, drawn once, and loses independently.
- `BurstyUplink`: losses come in bursts, after Gilbert (1960) and Elliott (1963).
- `LabelUplink`: losses are tied to what a client alone knows, after Gu et al. (2021).
- `HourlyUplink`: losses come and go by the hour, for all at once, after Xiang et al. (2024).
- `RecordedUplink`: what was measured somewhere, read from a file.

Anything with a method `lost` of the same kind is an uplink, too. The downlink never fails.
"""

import csv
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Literal, Protocol, Self, TypeAlias, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError, shown

Lost: TypeAlias = NDArray[np.bool_]

Hours: TypeAlias = Literal["sine", "steps", "cut"]
"""How the availability of all clients changes over a day of `DAY` rounds."""

DAY = 20
CUT = 0.25

# Streams of random numbers that must not meet.
_PROBABILITIES, _LOSSES, _STARTS, _STEPS = range(4)


class InvalidUplink(FedhawError, ValueError):
    """An uplink that cannot be: a probability out of range, or a trace that cannot be read."""


@runtime_checkable
class Uplink(Protocol):
    """A decision about which uploads get lost; must be a pure function of its arguments."""

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """(len(clients),) True where the client's upload does not arrive in this round."""


@dataclass(frozen=True)
class LetterUplink:
    """The letter's erroneous uplink.

    Client k's loss probability is p_k ~ Uniform(0, p_e), drawn once; each round's loss is an
    independent draw with that probability.

    Attributes:
        p_e: the largest loss probability a client may have, 0 to 1.
    """

    p_e: float

    def __post_init__(self) -> None:
        _check_probability("p_e", self.p_e)

    def probabilities(self, seed: int, clients: Sequence[int]) -> NDArray[np.float64]:
        """(len(clients),) the loss probabilities p_k."""
        return self.p_e * _uniforms(seed, _PROBABILITIES, 0, clients)

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        draws = _uniforms(seed, _LOSSES, round_index, clients)
        return draws < self.probabilities(seed, clients)


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
            _check_probability(name, getattr(self, name))
        if self.to_bad + self.to_good == 0:
            raise InvalidUplink("to_bad and to_good are both 0; at least one must be above 0.")

    @classmethod
    def bursts(cls, loss_rate: float, length: float) -> Self:
        """The channel that loses `loss_rate` of all uploads in bursts of mean `length` rounds.

        Raises:
            InvalidUplink: no such channel exists; a burst is at least 1 round long, and bursts that
                short cannot make up a large share.
        """
        _check_probability("loss_rate", loss_rate)
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
            u = _uniforms(seed, _STEPS, step, clients)
            decided = unknown & ((u < low) | (u >= high))
            state[decided] = (u < low)[decided] ^ flipped[decided]
            unknown &= ~decided
            if not unknown.any():
                return state
            flipped ^= unknown & flips_between
        share = self.to_bad / (self.to_bad + self.to_good)
        started_bad = _uniforms(seed, _STARTS, 0, clients) < share
        state[unknown] = started_bad[unknown] ^ flipped[unknown]
        return state

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        bad = self.bad(seed, round_index, clients)
        probability = np.where(bad, self.loss_when_bad, self.loss_when_good)
        return _uniforms(seed, _LOSSES, round_index, clients) < probability


@dataclass(frozen=True)
class LabelUplink:
    """An uplink that is the worse, the smaller the smallest label is that a client holds.

    A client whose smallest label is j of C classes loses with probability loss_rate (1 - j/(C-1)),
    independently in each round: those who hold the first class lose with loss_rate, and what is
    missing is always the same kind of knowledge. In the paper's words, clients are available with
    p_min + j/(C-1) (p_max - p_min), where p_min is 1 - loss_rate and p_max is 1.

    Attributes:
        smallest: (K,) the smallest label of each client.
        classes: C.
        loss_rate: the largest loss probability, 0 to 1.
    """

    smallest: tuple[int, ...]
    classes: int
    loss_rate: float

    def __post_init__(self) -> None:
        _check_probability("loss_rate", self.loss_rate)
        if not all(0 <= label < self.classes for label in self.smallest):
            raise InvalidUplink(
                f"smallest holds labels outside of 0 to {self.classes - 1}; give each client's "
                "smallest label, and how many classes there are."
            )

    @classmethod
    def of(cls, labels: NDArray[np.int64], loss_rate: float) -> Self:
        """From (K, C) how many samples of each class each client holds."""
        smallest = np.where(labels.any(axis=1), (labels > 0).argmax(axis=1), labels.shape[1] - 1)
        return cls(tuple(smallest.tolist()), labels.shape[1], loss_rate)

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        if max(clients, default=0) >= len(self.smallest):
            raise InvalidUplink(
                f"smallest has {len(self.smallest)} clients, but client {max(clients)} takes part; "
                "give the smallest label of every client."
            )
        labels = np.array(self.smallest, dtype=float)[np.asarray(clients, dtype=np.int64)]
        probability = self.loss_rate * (1 - labels / max(self.classes - 1, 1))
        return _uniforms(seed, _LOSSES, round_index, clients) < probability


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
        _check_probability("loss_rate", self.loss_rate)
        if self.hours not in get_args(Hours):
            raise InvalidUplink(f"hours is {self.hours!r}; it must be sine, steps or cut.")

    def availability(
        self, seed: int, round_index: int, clients: Sequence[int]
    ) -> NDArray[np.float64]:
        """(len(clients),) the probability that each client's upload arrives in this round."""
        hour = round_index % DAY
        sine = 0.7 + 0.3 * math.sin(2 * math.pi * hour / DAY)
        factor = sine if self.hours != "steps" else 1.0 if hour < DAY / 2 else 0.4
        base = 1 - self.loss_rate * _uniforms(seed, _PROBABILITIES, 0, clients)
        available = factor * base
        return np.where(available < CUT, 0.0, available) if self.hours == "cut" else available

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        arrives = self.availability(seed, round_index, clients)
        return _uniforms(seed, _LOSSES, round_index, clients) >= arrives


@dataclass(frozen=True)
class RecordedUplink:
    """Losses as they were recorded; the seed plays no part.

    Attributes:
        losses: (round, client) of every lost upload, both counted from 0. Whatever is not listed
            arrives, also after the last recorded round.
        origin: where they come from, for messages.
    """

    losses: frozenset[tuple[int, int]]
    origin: str = field(default="the recorded losses", compare=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """A trace in a file: CSV with the heading ``round,client`` and a line per lost upload.

        Empty lines and lines that begin with # are skipped.

        Raises:
            InvalidUplink: the file is missing or is not such a file; the line is named.
        """
        file = Path(path)
        losses: set[tuple[int, int]] = set()
        heading = False
        try:
            with file.open(encoding="utf-8-sig", newline="") as lines:
                rows = csv.reader(line for line in lines if not line.startswith("#"))
                for row in rows:
                    cells = [cell.strip() for cell in row]
                    if not any(cells):
                        continue
                    if not heading:
                        heading = _is_heading(cells, file)
                        continue
                    losses.add(_loss(cells, f"row {rows.line_num} of {file}"))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidUplink(
                f"{file} cannot be read as a trace of lost uploads ({reason}); give a CSV file "
                "with the heading round,client."
            ) from error
        if not heading:
            raise InvalidUplink(f"{file} is empty; a trace begins with the heading round,client.")
        return cls(frozenset(losses), str(file))

    def check(self, clients: int) -> None:
        """A check of this trace: one that names clients beyond the last of `clients` is refused."""
        largest = max((client for _, client in self.losses), default=0)
        if largest >= clients:
            raise InvalidUplink(
                f"{self.origin} names client {largest}, but the clients are 0 to {clients - 1}; "
                "the trace belongs to a larger federation."
            )

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        return np.array(
            [(round_index, client) in self.losses for client in clients], dtype=np.bool_
        )


BY_LOSS_RATE = ("letter", "bursty", "by-label")
"""The uplinks known by name that lose nothing at a loss rate of 0."""

KINDS = (*BY_LOSS_RATE, "hourly")
"""The uplinks that are known by name."""


def uplink_of(
    what: "Uplink | float | str | os.PathLike[str] | None",
    loss_rate: float = 0.0,
    burst: float = 3.0,
    hours: Hours = "sine",
    labels: Callable[[], NDArray[np.int64]] | None = None,
) -> Uplink | None:
    """An uplink from what a user may write for one; None is one that never fails.

    Args:
        what: None, one of `KINDS`, the letter's p_e, the path of a trace, or an uplink.
        loss_rate: p_e of "letter", the share of all uploads that "bursty" loses, or the largest
            loss probability of "by-label" and of "hourly" at the best hour.
        burst: mean rounds of a burst, for "bursty".
        hours: how "hourly" changes.
        labels: a function that counts, (K, C), how many samples of each class each client holds,
            for "by-label".

    Raises:
        InvalidUplink: it is none of these.
    """
    if what is None or (isinstance(what, Uplink) and not isinstance(what, type)):
        return what
    if what in BY_LOSS_RATE and not loss_rate:
        return None
    match what:
        case "hourly":
            return HourlyUplink(loss_rate, hours)
        case "letter":
            return LetterUplink(loss_rate)
        case "bursty":
            return BurstyUplink.bursts(loss_rate, burst)
        case "by-label":
            if labels is None:
                raise InvalidUplink("The uplink by-label needs the clients' labels; give labels.")
            return LabelUplink.of(labels(), loss_rate)
    if isinstance(what, (str, os.PathLike)):
        return RecordedUplink.read(what)
    if isinstance(what, Real) and not isinstance(what, bool):
        return LetterUplink(float(what))
    raise InvalidUplink(
        f"uplink is {what!r}; give None, {', '.join(KINDS)}, the letter's p_e, the path of a "
        "trace, or an uplink such as BurstyUplink."
    )


def _uniforms(
    seed: int, stream: int, round_index: int, clients: Sequence[int]
) -> NDArray[np.float64]:
    """(len(clients),) numbers in [0, 1), each fixed by (seed, stream, round, client)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, round_index))
    # The k-th number of a stream is client k's, however many clients are asked about.
    draws = np.random.Generator(np.random.PCG64(sequence)).random(max(clients, default=-1) + 1)
    return draws[np.asarray(clients, dtype=np.int64)]


def _check_probability(name: str, value: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InvalidUplink(f"{name} is {shown(value)}; it must be a probability, 0 to 1.")


def _is_heading(cells: list[str], file: Path) -> bool:
    if [cell.lower() for cell in cells] != ["round", "client"]:
        raise InvalidUplink(
            f"{file} begins with {shown(','.join(cells))}; a trace of lost uploads begins with the "
            "heading round,client."
        )
    return True


def _loss(cells: list[str], place: str) -> tuple[int, int]:
    # Eighteen digits fit 64 bits; isdecimal alone would take other scripts' digits, too.
    if len(cells) != 2 or not all(c.isascii() and c.isdecimal() and len(c) < 19 for c in cells):
        raise InvalidUplink(
            f"{place} is {shown(','.join(cells))}; it must be two whole numbers from 0, "
            "round,client."
        )
    return int(cells[0]), int(cells[1])

"""A guard on absurdly long updates, for any rule.

A client whose local training has diverged, or that lies, may send a model that is finite and well
formed and yet so far from what it was sent that a single weighted sum with it destroys the global
model. No rule can mend that afterwards, so such an upload is refused before a rule sees it. With
Delta_k = w_k - w, over the uploads that arrived,

    recent    = median of the medians of recent rounds
    highest   = the largest so far that the median was in two rounds running
    usual     = max(recent, min(median_j |Delta_j|, highest))
    allowed_k = min(limit + max(1, N_k / median_j N_j) - 1, limit^2) usual
    refused   : |Delta_k| > max(allowed_k, highest)

A client with more data takes more steps and may go further, by as much as it has more. How much it
has is its own word on Flower, and gives it weight, too: so it may not go `limit` times as far as
that, and `limit`^2 times as far as is usual in no case. Updates of length 0 say nothing about
lengths and count in no median.

What was usual once is not absurd: an update no longer than `highest` is never refused. Late in a
run, when most clients have little left to learn, their updates may be a thousand times as short as
at first. Whoever still learns something would then be shut out, and stay so, since the model would
never learn it. But where few of many arrive and most of these have diverged, so has their median:
it is believed up to `highest`.

A rule may ask to be shown long updates of some clients, which it shortens itself: its state names
them in `spared`. They are refused beyond SPARED times `highest`, and count in no median.

Two clients are no majority: in a round of one or two only earlier rounds say what is usual, and
before there are any nobody is refused. Where most of a round was refused, the oldest of the recent
rounds is forgotten, and with the last of them `highest`, so that a federation whose clients begin
to take longer steps goes on after a few rounds.
"""

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any, TypeVar

from fedhaw.rules.base import check_number

C = TypeVar("C", bound=Hashable)

LIMIT = 10.0
"""Above what honest clients of one federation differ by, and far below what divergence gives: on
the letter's MNIST federation nobody is refused (tests/simulation/test_letter.py). Near the end of
training, when all updates are short, honest ones may be 5 to 9 times as long as usual, and at
learning rates at which single clients diverge 20 times and more (benchmarks/honest_updates.py)."""

SPARED = 100.0
"""How many times as long as `highest` an update of a client may be that is left to the rule."""

MAJORITY = 3
"""Fewest clients of whom a median says what is usual."""

MEMORY = 5
"""Rounds that are remembered."""

NAMED = 5
"""Clients that a sentence names."""


@dataclass(frozen=True)
class LengthGuard:
    """A judge of updates by their length.

    Attributes:
        limit: how many times as long as usual an update may be; 0 refuses none.
        recent: the medians of the lengths in recent rounds, the latest last.
        highest: the most that the median was so far in two rounds running; one alone, in which most
            of a few had diverged, does not raise it.
    """

    limit: float = LIMIT
    recent: tuple[float, ...] = ()
    highest: float = 0.0

    def __post_init__(self) -> None:
        if self.limit != 0:
            check_number("The length guard", "limit", self.limit, above=1)

    def judge(
        self,
        lengths: Mapping[C, float],
        examples: Mapping[C, float],
        spared: Container[Hashable] = (),
    ) -> tuple[dict[C, str], "LengthGuard"]:
        """The clients whose updates are refused, and the guard that knows of this round.

        Args:
            lengths: |w_k - w| of every upload that arrived. NaN is nobody's length: a model that
                is not a number is named by the rule.
            examples: N_k of the same clients.
            spared: clients whose long updates the rule shortens itself.

        Returns:
            Why each refused client is refused, and the guard for the next round.
        """
        if not self.limit:
            return {}, self
        usual = self.usual({c: length for c, length in lengths.items() if c not in spared})
        typical = median_low([n for n in examples.values() if n > 0] or [1.0])
        refused: dict[C, str] = {}
        for client, length in lengths.items():
            more_data = max(1.0, examples[client] / typical)
            allowed = min(self.limit + more_data - 1.0, self.limit**2)
            room = SPARED if client in spared else 1.0
            if length == math.inf:
                refused[client] = "the update is not finite, or too long to be measured"
            elif usual is not None and length > max(allowed * usual, room * self.highest):
                refused[client] = f"the update is {length / usual:.2g} times as long as usual"
        taken = [length for c, length in lengths.items() if c not in refused and c not in spared]
        return refused, self._after(_measured(taken), len(refused))

    def usual(self, lengths: Mapping[C, float]) -> float | None:
        """The length that is usual; None where nothing is known yet."""
        present = _measured(lengths.values())
        median = median_low(present) if len(present) >= MAJORITY else 0.0
        if not self.recent:
            return median or None
        known = self.highest or max(self.recent)
        return max(median_low(self.recent), min(median, known))

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"recent": self.recent, "highest": self.highest}

    def going_on(self, facts: Mapping[str, Any]) -> "LengthGuard":
        """The guard with what a checkpoint kept; earlier ones did not know the highest median."""
        recent = tuple(facts["recent"])
        return replace(self, recent=recent, highest=facts.get("highest", 0.0))

    def _after(self, taken: list[float], refused: int) -> "LengthGuard":
        """The guard that knows of a round in which these lengths were taken and some refused."""
        if refused > len(taken):
            recent = self.recent[1:]
            return replace(self, recent=recent, highest=self.highest if recent else 0.0)
        if not taken:
            return self
        recent = (*self.recent, median_low(taken))[-MEMORY:]
        twice = min(recent[-2:]) if len(recent) > 1 else 0.0
        return replace(self, recent=recent, highest=max(self.highest, twice))


def shortened_note(clients: Sequence[Hashable]) -> str | None:
    """The sentence that tells whose updates counted as shorter than they were; None for nobody's.

    More than a few are counted: where many are shortened, that is how the rule works.
    """
    if not clients:
        return None
    named = ", ".join(repr(client) for client in clients[:NAMED])
    more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
    return f"shortened the update of client {named}{more}"


def _measured(lengths: Iterable[float]) -> list[float]:
    return [length for length in lengths if 0 < length < math.inf]

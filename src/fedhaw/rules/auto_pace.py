"""The lengths of FedHAW-auto's updates from round to round: do they shorten?

Clients that find less and less to do send shorter and shorter updates, and the noise in which
training ends goes with them. Those of clients that move as far in every round, as Adam's do, do not
shorten; a server that goes ten times as far makes their noise ten times as large, for ever. With

    q^2 = (1/t) sum_i |F_i|^2    over all t rounds
    f^2 = the same lately, as a running mean

the haste h = (f^2 / q^2) t / PATIENCE grows with time unless the updates shorten. The reach of
momentum, 1 / (1 - beta), is at most 10 / h, more where updates agree or turn back; where that is
below 1 there is no momentum, and the step is as short as that. So steps fall like 1/t, as
stochastic gradients of constant noise ask for.

Where the updates are less than half as long as on average, there is calm, max(0, 1 - 4 f^2 / q^2):
most of what there was to learn is learnt.
"""

from dataclasses import dataclass, replace

PATIENCE = 50
"""Rounds in which updates need not shorten: as many as a run of the letter has."""

SHORT = 0.5
"""As a part of q: updates shorter than this are those of calm."""

LATELY = 0.9
"""What is left of a round in the running mean after another."""


@dataclass(frozen=True)
class Pace:
    """How long the updates are.

    Attributes:
        rounds: t, how many there were.
        total: the sum of their squared lengths.
        recent: the running mean of those.
        highest: the largest median so far of the lengths of a round's client updates, which one
            round alone can at most double.
    """

    rounds: int = 0
    total: float = 0.0
    recent: float = 0.0
    highest: float = 0.0

    def after(self, square: float) -> "Pace":
        """The pace that knows of one more update, of that squared length."""
        recent = LATELY * self.recent + (1.0 - LATELY) * square if self.rounds else square
        return replace(self, rounds=self.rounds + 1, total=self.total + square, recent=recent)

    def beside(self, median: float) -> "Pace":
        """The pace that knows of one more round's client updates, of that median length."""
        most = 2.0 * self.highest if self.highest else median
        return replace(self, highest=max(self.highest, min(median, most)))

    @property
    def lately(self) -> float:
        """f^2 / q^2; 0 where there was no update."""
        return self.recent / self.total * self.rounds if self.total else 0.0

    @property
    def haste(self) -> float:
        """h, which grows with time unless updates shorten."""
        return self.lately * self.rounds / PATIENCE

    @property
    def calm(self) -> float:
        """How far the updates are below SHORT, 0 to 1."""
        return max(0.0, 1.0 - self.lately / SHORT**2)

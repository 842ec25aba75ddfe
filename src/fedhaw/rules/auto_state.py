"""What FedHAW-auto remembers from round to round."""

from dataclasses import dataclass, field

from fedhaw.rules.auto_pace import Pace
from fedhaw.rules.base import Array, Client, LastRound, Metrics
from fedhaw.rules.trust import Evidence


@dataclass(frozen=True)
class FedHAWAutoState(LastRound):
    """The coefficients, the momentum, the last round's updates and the evidence of trust.

    Attributes:
        gamma: log of the model's scaling.
        scaling: S, the sum of gamma over the rounds so far.
        given_back: R, how much of that has been given back.
        theta: logit of the momentum that is aimed at.
        momentum: beta, what it was in the last round.
        agreement: running mean of A.
        pace: how long the updates are, and were.
        start: length of the first model; 0 where the first update was longer than that.
        velocity: (P,) v; None before the first round and where it starts afresh.
        sent: (P,) the model the last round's clients started from, as it was given.
        previous: (K, P) what came back from them, as it was given.
        arrived: (K,) whose upload arrived and may be replayed.
        absent: the clients whose last update is still replayed.
        replayed: (L, P) those updates; None when there are none.
        evidence: what is known of whom to trust, and who is not trusted.
        weights: (K,) what the clients counted: s_k, or less where an update was too long.
        note: whom the server began or ceased to trust in the last round, whose update it shortened,
            or why the coefficients were held; None otherwise.
    """

    gamma: float = 0.0
    scaling: float = 0.0
    given_back: float = 0.0
    theta: float = 0.0
    momentum: float = 0.0
    agreement: float = 0.0
    pace: Pace = field(default_factory=Pace)
    start: float = 0.0
    velocity: Array | None = None
    sent: Array | None = None
    previous: Array | None = None
    arrived: Array | None = None
    absent: tuple[Client, ...] = ()
    replayed: Array | None = None
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def distrusted(self) -> tuple[Client, ...]:
        """The clients that do not count."""
        return self.evidence.outsiders

    @property
    def spared(self) -> tuple[Client, ...]:
        """The clients whose long updates the rule shortens; no guard need refuse them."""
        return self.evidence.different

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {
            "gamma": self.gamma,
            "momentum": self.momentum,
            "distrusted": float(len(self.distrusted)),
            "likeness": self.evidence.scores(),
            "growth": dict(self.evidence.growth),
        }

"""The state of a rule around another rule."""

from dataclasses import dataclass, field

from fedhaw.rules.base import Client, State, Vector, spared_by
from fedhaw.rules.fedavg import FedAvgState


@dataclass(frozen=True)
class StateAround:
    """What a rule around another one remembers: at least the other's state.

    Attributes:
        inner: the state of the rule within.
    """

    inner: State = field(default_factory=FedAvgState)

    @property
    def clients(self) -> tuple[Client, ...]:
        """Whom the rule within saw in the last round."""
        return self.inner.clients

    @property
    def weights(self) -> Vector:
        """(K,) their weights by the rule within."""
        return self.inner.weights

    @property
    def spared(self) -> tuple[Client, ...]:
        """The clients whose long updates the rule within shortens."""
        return spared_by(self.inner)

    @property
    def note(self) -> str | None:
        """What the rule within has to say of the last round, or None."""
        note: str | None = getattr(self.inner, "note", None)
        return note

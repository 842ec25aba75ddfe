"""What a rule with hypergradients by automatic differentiation remembers between rounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedhaw.rules.base import Array, Client, LastRound, Metrics, Vector


def _nothing() -> Vector:
    return np.zeros(0)


@dataclass(frozen=True)
class HypergradientState(LastRound):
    """The coefficients, and what made the current global model.

    Coefficients lie end to end in vectors, so that a state is made of plain arrays, whatever the
    formula; `coefficients` gives them by name.

    Attributes:
        clients: who took part in the last round.
        weights: (K,) their relative weights in it.
        note: why the coefficients were held in it, or None.
        names: of the coefficients that all clients share.
        values: their values, end to end.
        sizes: how many of them belong to each name.
        client_names: of the coefficients that every client has one of.
        client_values: (seen, client_names) theirs; not finite: the client joins anew.
        seen: every client so far, a row of client_values each.
        shares: (K,) the shares of the data of the last round's clients.
        global_model: (P,) the model they started from; None before the first round.
        previous: (K, P) their models as the server used them; None before the first round.
        rounds: how many rounds were aggregated.
    """

    names: tuple[str, ...] = ()
    values: Vector = field(default_factory=_nothing)
    sizes: Vector = field(default_factory=_nothing)
    client_names: tuple[str, ...] = ()
    client_values: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    seen: tuple[Client, ...] = ()
    shares: Vector = field(default_factory=_nothing)
    global_model: Array | None = None
    previous: Array | None = None
    rounds: int = 0

    @property
    def coefficients(self) -> dict[str, Vector]:
        """By name: (n,) what all share, and (K,) what each client of the last round has."""
        return self.at(self.clients)

    @property
    def metrics(self) -> Metrics:
        """The coefficients that all clients share, by name: a number, or several end to end."""
        shared = self._shared().items()
        return {name: float(value[0]) if value.size == 1 else value for name, value in shared}

    def at(self, cohort: Sequence[Client]) -> dict[str, Vector]:
        """By name: (n,) what all share, and (K,) what each of `cohort` has, NaN for the unseen."""
        row_of = {client: row for row, client in enumerate(self.seen)}
        unseen = np.full((1, len(self.client_names)), np.nan)
        rows = np.concatenate([self.client_values, unseen])[[row_of.get(c, -1) for c in cohort]]
        return self._shared() | {name: rows[:, i] for i, name in enumerate(self.client_names)}

    def with_values(self, cohort: Sequence[Client], new: dict[str, Vector]) -> "HypergradientState":
        """The state with `new` coefficients, those of clients being `cohort`'s; some may join."""
        known = set(self.seen)
        seen = (*self.seen, *(client for client in cohort if client not in known))
        row_of = {client: row for row, client in enumerate(seen)}
        client_values = np.full((len(seen), len(self.client_names)), np.nan)
        client_values[: len(self.seen)] = self.client_values
        rows = [row_of[client] for client in cohort]
        for column, name in enumerate(self.client_names):
            client_values[rows, column] = new[name]
        shared = [np.ravel(new[name]) for name in self.names]
        return replace(
            self,
            values=np.concatenate([_nothing(), *shared]),
            client_values=client_values,
            seen=seen,
        )

    def _shared(self) -> dict[str, Vector]:
        parts = np.split(self.values, np.cumsum(self.sizes, dtype=np.int64)[:-1])
        return dict(zip(self.names, parts, strict=False))  # without names, one part of nothing

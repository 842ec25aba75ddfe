"""What a history is made of: a run, its rounds, an end.

A field of a record is a key of its line in the file, under the same name; docs/history-format.md
lists them. `fedhaw.history.lines` turns a record into its line and back.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np

from fedhaw.history.errors import HistoryError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Whatever JSON can say."""

Learnt: TypeAlias = float | tuple[float | None, ...] | Mapping[str, float]
"""A metric of a rule: a number, or several, with None for those that are not finite, or a number a
client."""


@dataclass(frozen=True)
class ClientFacts:
    """What is known of a client before the first round.

    Attributes:
        examples: how many samples it holds; None where that is not known.
        labels: how many of each class; empty where that is not known.
    """

    examples: int | None = None
    labels: tuple[int, ...] = ()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunRecord:
    """The first line: what the run is.

    Attributes:
        name: what the run calls itself, by default its rule's name.
        rule: the rule's name and hyper-parameters.
        seed: of everything random but the split.
        config: everything the result depends on.
        clients: the clients by name.
        parameters: P, the length of a model.
        started: when, in UTC.
        fedhaw: the version that wrote it.
    """

    name: str
    rule: Mapping[str, Json]
    seed: int = 0
    config: Mapping[str, Json] = field(default_factory=dict)
    clients: Mapping[str, ClientFacts] = field(default_factory=dict)
    parameters: int | None = None
    started: str = field(default_factory=_now)
    fedhaw: str = "?"

    @property
    def rounds(self) -> int | None:
        """How many rounds are asked for, where the configuration says so."""
        rounds = self.config.get("rounds")
        return rounds if isinstance(rounds, int) else None


@dataclass(frozen=True)
class RoundRecord:
    """A round: what was measured of the new model, what the rule learnt, who took part.

    Mappings hold finite numbers only: what is not finite, or not known, is left out.

    Attributes:
        round: its number, from 0.
        evaluation: what was measured of the new global model, by name; empty without evaluation.
        metrics: what the rule learnt, by name: a number, or one for each layer, or by client.
        weights: each client's relative weight in the new model; empty when nothing arrived.
        lost: why each lost client's upload was not used.
        client_loss: mean training loss of each client that trained.
        client_accuracy: the new model's accuracy on each client's own samples.
        seconds: wall-clock time of "train", "aggregate" and "evaluate".
        bytes: of the models sent "up" that arrived, and sent "down".
        note: what the rule, or the server, has to say about the round.
    """

    round: int
    evaluation: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, Learnt] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    client_loss: Mapping[str, float] = field(default_factory=dict)
    client_accuracy: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True)
class EndRecord:
    """The last line of a run that is over.

    Attributes:
        status: "finished".
        seconds: how long the run took.
    """

    status: str = "finished"
    seconds: float | None = None


Record: TypeAlias = RunRecord | RoundRecord | EndRecord
"""What a line of the file holds."""


def numbers_of(value: Learnt) -> dict[str, float | None]:
    """The numbers of a metric: one alone under "", those of a list by place, clients' by name."""
    if isinstance(value, Mapping):
        return dict(value)
    return {str(i): n for i, n in enumerate(value)} if isinstance(value, tuple) else {"": value}


def finite(names: Iterable[Hashable], values: Iterable[float]) -> dict[str, float]:
    """Finite values by name, as a record holds them."""
    pairs = zip(names, values, strict=True)
    return {str(name): float(value) for name, value in pairs if math.isfinite(value)}


def metrics_of(state: object) -> dict[str, Learnt]:
    """What a rule's state says it learnt, as a record holds it.

    Raises:
        HistoryError: one of the metrics is not made of numbers.
    """
    metrics: dict[str, Learnt] = {}
    said = getattr(state, "metrics", {})
    if not isinstance(said, Mapping):
        raise HistoryError(
            f"The metrics of {type(state).__name__} are a {type(said).__name__}; they must be a "
            "mapping from names to numbers."
        )
    for name, value in said.items():
        try:
            if isinstance(value, Mapping):
                metrics[str(name)] = finite(value, map(float, value.values()))
                continue
            numbers = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise HistoryError(
                f"The metric {name!r} of {type(state).__name__} is a {type(value).__name__}; it "
                "must be a number, a short list of numbers, or a number for each client."
            ) from error
        if numbers.ndim:
            metrics[str(name)] = tuple(n if math.isfinite(n) else None for n in numbers.flat)
        elif math.isfinite(numbers):
            metrics[str(name)] = float(numbers)
    return metrics

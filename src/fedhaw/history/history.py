"""The history of a run as arrays, for its user and for reports."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.history.drawing import to_html
from fedhaw.history.errors import HistoryError
from fedhaw.history.file import find_histories, history_in, parse
from fedhaw.history.frames import Rows, to_pandas
from fedhaw.history.records import Learnt, RoundRecord, RunRecord

if TYPE_CHECKING:
    import pandas as pd

Vector: TypeAlias = NDArray[np.float64]
"""Numbers of a run: one a round, or a row a round."""


@dataclass(frozen=True, eq=False)
class History:
    """One run: one rule on one federation with one seed, T rounds of it.

    Attributes:
        run: what the run is, the file's first line.
        records: what happened, a record a round.
        finished: whether the run came to its end.
        path: the file it is stored in, if any.
        model: (P,) the final global model; None where only the file was read.
    """

    run: RunRecord
    records: Sequence[RoundRecord]
    finished: bool = False
    path: Path | None = None
    model: NDArray[np.float32] | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The history in a file or a run's folder, compressed or not, also while the run goes on.

        Raises:
            HistoryError: the file is missing, or is not a history.
        """
        file = history_in(path)
        content = parse(file)
        if content.run is None:
            raise HistoryError(
                f"{file} holds no complete line yet; try again in a moment, or remove it."
            )
        return cls(content.run, tuple(content.records), content.finished, file)

    @classmethod
    def read_all(cls, folders: Sequence[str | os.PathLike[str]]) -> tuple[Self, ...]:
        """Every history under the given folders.

        Raises:
            HistoryError: there is none, or one of them is not a history.
        """
        return tuple(cls.read(path) for path in find_histories(folders))

    @property
    def name(self) -> str:
        """What the run calls itself."""
        return self.run.name

    @property
    def rule(self) -> str:
        """The rule's lower-case name."""
        return str(self.run.rule.get("name", "run"))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.run.seed

    @property
    def rounds_planned(self) -> int | None:
        """How many rounds the run's description asks for, where it says so."""
        return self.run.rounds

    @property
    def rounds(self) -> NDArray[np.int64]:
        """(T,) the rounds' numbers, 0 to T - 1."""
        return np.arange(len(self.records), dtype=np.int64)

    @cached_property
    def evaluation(self) -> Mapping[str, Vector]:
        """By name, (T,) what was measured of the global model; NaN in rounds without it."""
        return {
            name: _array([record.evaluation.get(name) for record in self.records])
            for name in _names(record.evaluation for record in self.records)
        }

    @cached_property
    def metrics(self) -> Mapping[str, Vector]:
        """By name, what the rule learnt: (T,) numbers, or (T, L) where it is a list of L."""
        by_client = self.client_metrics
        return {
            name: _array([record.metrics.get(name) for record in self.records])
            for name in _names(record.metrics for record in self.records)
            if name not in by_client
        }

    @cached_property
    def client_metrics(self) -> Mapping[str, Vector]:
        """By name, (T, K) what the rule learnt of each client; NaN where it says nothing."""
        names = {
            name: None
            for record in self.records
            for name, value in record.metrics.items()
            if isinstance(value, Mapping)
        }
        return {name: self._by_client(partial(_of_clients, name)) for name in names}

    @property
    def accuracy(self) -> Vector:
        """(T,) test accuracy, 0 to 1; NaN in rounds that were not evaluated."""
        return self.series(lambda record: record.evaluation.get("accuracy"))

    @property
    def loss(self) -> Vector:
        """(T,) test loss; NaN in rounds that were not evaluated."""
        return self.series(lambda record: record.evaluation.get("loss"))

    @property
    def lost(self) -> NDArray[np.int64]:
        """(T,) how many clients of the cohort were lost, for whatever reason."""
        return np.array([len(record.lost) for record in self.records], dtype=np.int64)

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The K clients' names: those known from the start, then those that came later."""
        return _names([self.run.clients, *(record.weights for record in self.records)])

    @cached_property
    def weights(self) -> Vector:
        """(T, K) each client's weight; NaN where it did not take part in the aggregation."""
        return self._by_client(lambda record: record.weights)

    @cached_property
    def client_accuracy(self) -> Vector:
        """(T, K) the global model's accuracy on each client's own samples; NaN without it."""
        return self._by_client(lambda record: record.client_accuracy)

    @cached_property
    def label_counts(self) -> NDArray[np.int64] | None:
        """(K, classes) samples of each class each client holds; None where not recorded."""
        rows = [client.labels for client in self.run.clients.values()]
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            return None
        return np.array(rows, dtype=np.int64)

    @cached_property
    def shares(self) -> Vector:
        """(K,) each client's share of all samples; NaN where not recorded."""
        known = {name: client.examples for name, client in self.run.clients.items()}
        held = np.array([known.get(client) for client in self.clients], dtype=np.float64)
        return np.asarray(held / np.nansum(held)) if np.nansum(held) > 0 else held * np.nan

    def series(self, value: Callable[[RoundRecord], float | None]) -> Vector:
        """(T,) one number a round; NaN where there is none."""
        return np.array([value(record) for record in self.records], dtype=np.float64)

    def to_pandas(self, by: Rows = "round") -> "pd.DataFrame":
        """The history as a pandas data frame.

        Args:
            by: "round" for a row a round: what was measured and learnt by name (a list of L
                numbers as L columns, `name[0]` and so on), `lost`, how many uploads were, and
                seconds and bytes. "client" for a row for each round and each client that was
                asked: its weight, why it was lost (None if it was not), its training loss, the
                new model's accuracy on its own samples, and what the rule learnt of it. What a
                rule calls like another column is under `rule/`, and an evaluation metric of a
                user's under `evaluation/`.

        Raises:
            MissingExtra: pandas is not installed.
            HistoryError: `by` is something else.
        """
        return to_pandas(self, by)

    def _repr_html_(self) -> str:
        return to_html(self)

    def _by_client(self, values: Callable[[RoundRecord], Mapping[str, float]]) -> Vector:
        rows = [[values(r).get(client, math.nan) for client in self.clients] for r in self.records]
        return np.array(rows, dtype=np.float64).reshape(len(self.records), len(self.clients))

    def __repr__(self) -> str:
        known = self.accuracy[~np.isnan(self.accuracy)]
        ending = f", accuracy {known[-1]:.4f}" if len(known) else ""
        return f"History({self.name!r}, {len(self.records)} rounds{ending})"


def _names(mappings: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """Every key once, in the order of first appearance."""
    return tuple(dict.fromkeys(name for mapping in mappings for name in mapping))


def _of_clients(name: str, record: RoundRecord) -> Mapping[str, float]:
    value = record.metrics.get(name)
    return value if isinstance(value, Mapping) else {}


def _array(values: Sequence[Learnt | None]) -> Vector:
    """(T,) numbers, or (T, L) if there are lists, the longest of length L; NaN for the missing."""
    width = max((len(value) for value in values if isinstance(value, tuple)), default=0)
    if not width:
        return np.array([v if isinstance(v, float) else None for v in values], dtype=np.float64)
    table = np.full((len(values), width), math.nan)
    for row, value in zip(table, values, strict=True):
        if isinstance(value, tuple):
            row[: len(value)] = np.array(value, dtype=np.float64)
    return table

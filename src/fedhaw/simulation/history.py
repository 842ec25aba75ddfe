"""The history of a run, as its user sees it; `fedhaw.history_file` is how it lies on disk."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedhaw.history_file import FILE_NAME, HistoryError, Record, parse


@dataclass(frozen=True, eq=False)
class History:
    """What happened, round by round.

    Attributes:
        run: the description of the run, the file's first line.
        records: one mapping a round, as in docs/history-format.md.
        model: (P,) the final global model; None where only the file was read.
        path: the file it is stored in, if any.
        finished: whether the run came to its end.
    """

    run: Record
    records: list[Record]
    model: NDArray[np.float32] | None = None
    path: Path | None = None
    finished: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a history file, or that of a run's folder, also while the run goes on.

        Raises:
            HistoryError: the file is missing, or is not a history.
        """
        file = Path(path)
        if file.is_dir():
            file = file / FILE_NAME
        content = parse(file)
        if content.run is None:
            raise HistoryError(f"{file} holds no complete line yet; try again in a moment.")
        return cls(content.run, content.records, None, file, content.finished)

    @property
    def rounds(self) -> NDArray[np.int64]:
        """(T,) the rounds' numbers, 0 to T - 1."""
        return np.array([record["round"] for record in self.records], dtype=np.int64)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(T,) test accuracy, 0 to 1; NaN in rounds that were not evaluated."""
        return self._numbers("accuracy")

    @property
    def loss(self) -> NDArray[np.float64]:
        """(T,) test loss; NaN in rounds that were not evaluated."""
        return self._numbers("loss")

    @property
    def gamma(self) -> NDArray[np.float64]:
        """(T,) gamma, or (T, L) for a rule with one per layer; NaN where a rule has none."""
        width = max(
            (len(r["gamma"]) for r in self.records if isinstance(r["gamma"], list)), default=0
        )
        if not width:
            return self._numbers("gamma")
        empty = [math.nan] * width
        rows = [r["gamma"] if isinstance(r["gamma"], list) else empty for r in self.records]
        return np.array(rows, dtype=np.float64).reshape(len(rows), width)

    @property
    def weights(self) -> NDArray[np.float64]:
        """(T, K) each client's weight; NaN where it did not take part in the aggregation."""
        table = np.full((len(self.records), len(self.run["clients"])), math.nan)
        for row, record in zip(table, self.records, strict=True):
            for client, weight in record["weights"].items():
                row[int(client)] = weight
        return table

    @property
    def lost(self) -> NDArray[np.int64]:
        """(T,) how many clients of the cohort were lost, for whatever reason."""
        return np.array([len(record["lost"]) for record in self.records], dtype=np.int64)

    def __repr__(self) -> str:
        name, done = self.run.get("name"), len(self.records)
        known = self.accuracy[~np.isnan(self.accuracy)]
        ending = f", accuracy {known[-1]:.4f}" if len(known) else ""
        return f"History({name!r}, {done} rounds{ending})"

    def _numbers(self, name: str) -> NDArray[np.float64]:
        values = [record[name] for record in self.records]
        return np.array([math.nan if v is None else v for v in values], dtype=np.float64)

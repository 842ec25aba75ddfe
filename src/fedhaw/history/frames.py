"""A history as pandas data frames: a row a round, or a row a round and client."""

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import importing
from fedhaw.history.errors import HistoryError

if TYPE_CHECKING:
    import pandas as pd

    from fedhaw.history.history import History

Rows: TypeAlias = Literal["round", "client"]
"""What a row of a data frame is about."""


def to_pandas(history: "History", by: Rows) -> "pd.DataFrame":
    """The frame that `History.to_pandas` describes."""
    with importing("History.to_pandas", "pandas"):
        import pandas as pd
    if by == "round":
        return pd.DataFrame(_columns(history), index=pd.Index(history.rounds, name="round"))
    if by != "client":
        raise HistoryError(f'by is {by!r}; choose "round" or "client".')
    names = ("round", "client", "weight", "lost", "training loss", "accuracy")
    frame = pd.DataFrame(_client_rows(history), columns=list(names))
    numbers = ["weight", "training loss", "accuracy"]
    return frame.astype(dict.fromkeys(numbers, np.float64)).set_index(["round", "client"])


def _columns(history: "History") -> dict[str, object]:
    """By name, a number for each round; a list of L numbers becomes L columns, `name[l]`."""
    columns: dict[str, object] = {**history.evaluation}
    for name, values in history.metrics.items():
        if values.ndim == 1:
            columns[name] = values
        else:
            columns |= {f"{name}[{index}]": part for index, part in enumerate(values.T)}
    columns["lost"] = history.lost
    records = history.records
    for key in ("train", "aggregate", "evaluate"):
        columns[f"seconds/{key}"] = _numbers([record.seconds.get(key) for record in records])
    for key in ("up", "down"):
        columns[f"bytes/{key}"] = _numbers([record.bytes.get(key) for record in records])
    return columns


def _numbers(values: list[float | None] | list[int | None]) -> NDArray[np.float64]:
    """(T,) NaN for what is missing."""
    return np.array(values, dtype=np.float64)


def _client_rows(history: "History") -> list[tuple[object, ...]]:
    return [
        (
            record.round,
            client,
            record.weights.get(client),
            record.lost.get(client),
            record.client_loss.get(client),
            record.client_accuracy.get(client),
        )
        for record in history.records
        for client in history.clients
        if client in record.weights or client in record.lost or client in record.client_loss
    ]

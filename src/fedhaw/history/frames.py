"""A history as pandas data frames: a row a round, or a row a round and client."""

from collections.abc import Container
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

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
    own = ("round", "client", "weight", "lost", "training loss", "accuracy")
    learnt = [_learnt(name, own) for name in history.client_metrics]
    frame = pd.DataFrame(_client_rows(history), columns=[*own, *learnt])
    numbers = ["weight", "training loss", "accuracy", *learnt]
    return frame.astype(dict.fromkeys(numbers, np.float64)).set_index(["round", "client"])


def _columns(history: "History") -> dict[str, object]:
    """By name, a number for each round; a list of L numbers becomes L columns, `name[l]`."""
    costs: dict[str, object] = {"lost": history.lost}
    for place, keys in (("seconds", ("train", "aggregate", "evaluate")), ("bytes", ("up", "down"))):
        for key in keys:
            spent = [getattr(record, place).get(key) for record in history.records]
            costs[f"{place}/{key}"] = np.array(spent, dtype=np.float64)
    measured = {
        f"evaluation/{name}" if name in costs else name: values
        for name, values in history.evaluation.items()
    }
    learnt: dict[str, object] = {}
    for name, values in history.metrics.items():
        column = _learnt(name, {**measured, **costs})
        if values.ndim == 1:
            learnt[column] = values
        else:
            learnt |= {f"{column}[{index}]": part for index, part in enumerate(values.T)}
    return {**measured, **learnt, **costs}


def _learnt(name: str, taken: Container[str]) -> str:
    """The column of a rule's metric, which may be called like something else."""
    return f"rule/{name}" if name in taken else name


def _client_rows(history: "History") -> list[tuple[object, ...]]:
    column_of = {client: column for column, client in enumerate(history.clients)}
    return [
        (
            record.round,
            client,
            record.weights.get(client),
            record.lost.get(client),
            record.client_loss.get(client),
            record.client_accuracy.get(client),
            *(values[t, column_of[client]] for values in history.client_metrics.values()),
        )
        for t, record in enumerate(history.records)
        for client in history.clients
        if client in record.weights or client in record.lost or client in record.client_loss
    ]

"""What can be followed from round to round, and how each number is written."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhaw.history import History, RoundRecord, Vector

MISSING = "\N{EN DASH}"
"""Stands where there is no number."""

Better = Literal["higher", "lower"] | None


@dataclass(frozen=True)
class Notation:
    """How a quantity is written, the same in every table, figure and page.

    Attributes:
        unit: written behind the title of a column or an axis; may be empty.
        factor: what a stored value is multiplied by to be in that unit.
        decimals: digits behind the point, or
        significant: significant digits, where values span orders of magnitude.
    """

    unit: str = ""
    factor: float = 1.0
    decimals: int | None = None
    significant: int = 3

    def text(self, value: float) -> str:
        """The number alone; an en dash where there is none."""
        if not math.isfinite(value):
            return MISSING
        scaled = value * self.factor
        decimals = self.decimals
        if decimals is None:
            magnitude = math.floor(math.log10(abs(scaled))) if scaled else 0
            decimals = max(self.significant - 1 - magnitude, 0) if scaled else 0
        text = f"{scaled:.{min(decimals, 9)}f}"
        return text.removeprefix("-") if float(text) == 0 else text

    def titled(self, title: str) -> str:
        """The title with its unit."""
        return f"{title} ({self.unit})" if self.unit else title


def duration(seconds: float) -> str:
    """A span of time as one says it, to two digits or so."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


PERCENT = Notation("%", 100.0, decimals=2)
PLAIN = Notation(decimals=4)
COUNT = Notation(decimals=1)
WHOLE = Notation(decimals=0)
SECONDS = Notation("s")
MILLISECONDS = Notation("ms", 1e3)
MEGABYTES = Notation("MB", 1e-6)
ANY = Notation(significant=4)
"""For numbers of which nothing is known but their name."""


@dataclass(frozen=True)
class Metric:
    """One number a round.

    Attributes:
        key: its name in data files. No evaluation metric of a user's own has a slash in it.
        title: its name for people.
        notation: how it is written.
        read: (T,) values of a run.
        better: which direction is good, if any.
    """

    key: str
    title: str
    notation: Notation
    read: Callable[[History], Vector]
    better: Better = None


def measured(name: str) -> Metric:
    """What was measured of the global model under a name, such as "loss" or "accuracy/SCALE"."""
    base, _, scale = name.partition("/")
    title, notation, better = _TITLES.get(name) or _TITLES.get(base) or (base, ANY, None)
    if scale and name not in _TITLES:
        title += f", {scale} scale"
    return Metric(name, title, notation, _recorded("evaluation", name), better)


def _recorded(place: str, key: str) -> Callable[[History], Vector]:
    """What reads, round by round, the number under a key of one of a record's mappings."""
    return lambda run: run.series(lambda record: getattr(record, place).get(key))


def learnt(name: str) -> tuple[Metric, Metric]:
    """What rules learnt under a name: where it is a number, and where it is a list, its mean."""
    return (
        Metric(f"rule/{name}", name, ANY, lambda run: _learnt(run, name, dimensions=1)),
        Metric(
            f"rule/{name}/mean", f"{name}, mean", ANY, lambda run: _learnt(run, name, dimensions=2)
        ),
    )


def _learnt(run: History, name: str, dimensions: int) -> Vector:
    values = run.metrics.get(name)
    if values is None or values.ndim != dimensions:
        return np.full(len(run.records), np.nan)
    if dimensions == 1:
        return values
    known = np.isfinite(values).sum(axis=1)
    total = np.nansum(values, axis=1)
    mean: Vector = np.divide(total, known, out=np.full(len(values), np.nan), where=known > 0)
    return mean


def _client_loss(record: RoundRecord) -> float | None:
    losses = record.client_loss.values()
    return math.fsum(losses) / len(losses) if losses else None


_TITLES: dict[str, tuple[str, Notation, Better]] = {
    "accuracy": ("Test accuracy", PERCENT, "higher"),
    "loss": ("Test loss", PLAIN, "lower"),
    "client_accuracy/mean": ("Clients' accuracy, mean", PERCENT, "higher"),
    "client_accuracy/worst": ("Clients' accuracy, worst", PERCENT, "higher"),
    "client_accuracy/spread": ("Clients' accuracy, spread", PERCENT, "lower"),
}
"""How the evaluation metrics that fedhaw itself measures are called and written."""

ACCURACY = measured("accuracy")
CLIENT_LOSS = Metric(
    "cost/client_loss",
    "Clients' training loss",
    PLAIN,
    lambda run: run.series(_client_loss),
    "lower",
)
LOST = Metric("cost/lost", "Lost uploads", COUNT, lambda run: run.lost.astype(np.float64))
SERVER = Metric(
    "cost/server", "Server time", MILLISECONDS, _recorded("seconds", "aggregate"), "lower"
)
TRAIN = Metric("cost/train", "Training time", SECONDS, _recorded("seconds", "train"), "lower")
BYTES_UP = Metric("cost/up", "Sent up", MEGABYTES, _recorded("bytes", "up"))
BYTES_DOWN = Metric("cost/down", "Sent down", MEGABYTES, _recorded("bytes", "down"))
COSTS = (LOST, SERVER, TRAIN, BYTES_UP, BYTES_DOWN)

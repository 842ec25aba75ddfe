"""What can be followed from round to round, and how each number is written."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhaw.reports.runs import Record, Run, Vector, number_at

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


PERCENT = Notation("%", 100.0, decimals=2)
PLAIN = Notation(decimals=4)
COUNT = Notation(decimals=1)
WHOLE = Notation(decimals=0)
SECONDS = Notation("s")
MILLISECONDS = Notation("ms", 1e3)
MEGABYTES = Notation("MB", 1e-6)


@dataclass(frozen=True)
class Metric:
    """One number a round.

    Attributes:
        key: its name in data files.
        title: its name for people.
        notation: how it is written.
        read: (T,) values of a run.
        better: which direction is good, if any.
    """

    key: str
    title: str
    notation: Notation
    read: Callable[[Run], Vector]
    better: Better = None


def _lost(record: Record) -> float:
    lost = record.get("lost")
    return float(len(lost)) if isinstance(lost, dict) else math.nan


def _factor(run: Run) -> Vector:
    """exp(gamma), or the mean over the layers where there is a factor for each."""
    if run.layer_factors is not None:
        return np.asarray(run.layer_factors.mean(axis=1))
    return np.exp(run.at("gamma"))


def _client_loss(record: Record) -> float:
    losses = record.get("client_loss")
    values = [number_at(losses, client) for client in losses] if isinstance(losses, dict) else []
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan


ACCURACY = Metric("accuracy", "Test accuracy", PERCENT, lambda run: run.at("accuracy"), "higher")
LOSS = Metric("loss", "Test loss", PLAIN, lambda run: run.at("loss"), "lower")
CLIENT_LOSS = Metric(
    "client_loss", "Clients' training loss", PLAIN, lambda run: run.series(_client_loss), "lower"
)
GAMMA = Metric("gamma", "Gamma", Notation(decimals=5), lambda run: run.at("gamma"))
FACTOR = Metric("factor", "Factor on the model", Notation(decimals=5), _factor)
LOST = Metric("lost", "Lost uploads", COUNT, lambda run: run.series(_lost))
SERVER = Metric(
    "server", "Server time", MILLISECONDS, lambda run: run.at("seconds", "aggregate"), "lower"
)
TRAIN = Metric("train", "Training time", SECONDS, lambda run: run.at("seconds", "train"), "lower")
BYTES_UP = Metric("up", "Sent up", MEGABYTES, lambda run: run.at("bytes", "up"))
BYTES_DOWN = Metric("down", "Sent down", MEGABYTES, lambda run: run.at("bytes", "down"))

METRICS = (
    ACCURACY, LOSS, CLIENT_LOSS, GAMMA, FACTOR, LOST, SERVER, TRAIN, BYTES_UP, BYTES_DOWN,
)  # fmt: skip


def accuracy_on(scale: str) -> Metric:
    """The accuracy on a further input scale."""
    return Metric(
        f"accuracy:{scale}",
        f"Test accuracy, {scale} scale",
        PERCENT,
        lambda run: run.at("accuracies", scale),
        "higher",
    )

"""A picture of who holds what: clients down, classes across, samples as areas."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.errors import FedhawError
from fedhaw.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELLED = 30
"""Beyond so many clients or classes, only some of the ticks are labelled."""


class HoldingsError(FedhawError, ValueError):
    """Counts that are not a table of clients by classes."""


def draw_holdings(
    counts: ArrayLike,
    target: "str | os.PathLike[str] | Axes",
    title: str = "Samples of each class held by each client",
) -> None:
    """A picture of how many samples of each class each client holds.

    A dot's area is proportional to the count; the largest just touches its neighbours. Beside
    each row stands the client's total.

    Args:
        counts: (K, classes) whole numbers, as `fedhaw.data.label_counts` gives them.
        target: a file to write, of any format matplotlib knows by its ending, or axes to draw on.
        title: above the picture.

    Raises:
        HoldingsError: counts is not a table of numbers from 0 with someone holding something.
        FileWriteError: the file could not be written.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu" or table.min() < 0:
        raise HoldingsError(
            f"Holdings of shape {table.shape} and type {table.dtype} cannot be drawn; give a "
            "(clients, classes) table of whole numbers from 0."
        )
    if not isinstance(target, str | os.PathLike):
        _draw(table, target, title)
        return

    from matplotlib.figure import Figure

    clients, classes = table.shape
    # A Figure without pyplot: no global state, no display, safe in a worker.
    figure = Figure(
        figsize=(2.5 + 0.28 * min(classes, 60), 1.4 + 0.28 * min(clients, 60)), layout="constrained"
    )
    _draw(table, figure.add_subplot(), title)
    ending = Path(target).suffix.lstrip(".") or "png"
    with replacing(target) as temporary:
        figure.savefig(temporary, format=ending, dpi=150)


def _draw(table: NDArray[np.integer], axes: "Axes", title: str) -> None:
    clients, classes = table.shape
    largest = max(int(table.max()), 1)
    # Circles rather than scatter markers: their size is in data units, so they fit any figure.
    from matplotlib.collections import EllipseCollection

    rows, columns = np.nonzero(table)
    diameters = np.sqrt(table[rows, columns] / largest)
    axes.add_collection(
        EllipseCollection(
            diameters,
            diameters,
            np.zeros(len(rows)),
            units="xy",
            offsets=np.column_stack([columns, rows]),
            transOffset=axes.transData,
            facecolors="#33658a",
        )
    )
    axes.set(
        xlim=(-0.6, classes - 0.4),
        ylim=(clients - 0.4, -0.6),
        aspect="equal",
        xlabel="class",
        ylabel="client",
        title=title,
        xticks=_ticks(classes),
        yticks=_ticks(clients),
    )
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)
    totals = axes.secondary_yaxis("right")
    totals.set_yticks(
        _ticks(clients), [f"{total:,}" for total in table.sum(axis=1)[_ticks(clients)]]
    )
    totals.tick_params(length=0)
    totals.spines["right"].set_visible(False)
    totals.set_ylabel("samples")


def _ticks(count: int) -> list[int]:
    return list(range(0, count, -(-count // MOST_LABELLED)))

"""One table, whatever it is written as: every number is turned into text here and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from fedhaw.reports.comparison import Comparison, Group, Spread
from fedhaw.reports.metrics import (
    ACCURACY,
    BYTES_DOWN,
    BYTES_UP,
    COUNT,
    LOST,
    MEGABYTES,
    MILLISECONDS,
    MISSING,
    PERCENT,
    SECONDS,
    SERVER,
    TRAIN,
    WHOLE,
    Better,
    Metric,
    Notation,
)

DEFAULTS = ("accuracy", "loss")
"""Evaluation metrics that have columns of their own, or are for the page alone."""

Value = Spread | float | str | None
Rank = Literal[0, 1, 2]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: its heading, without the unit.
        notation: how its numbers are written.
        better: which direction is good; the best is then set bold and the second underlined.
        spread: whether the spread over seeds is written behind the mean.
    """

    title: str
    notation: Notation = WHOLE
    better: Better = None
    spread: bool = False

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return self.notation.titled(self.title)


@dataclass(frozen=True)
class Cell:
    """What stands in a cell.

    Attributes:
        mean: the number, or any other text.
        std: the spread behind it, or empty.
        rank: 1 for the best of its column, 2 for the second, else 0.
        numeric: whether it is a number, and so set to the right.
        value: what it sorts by; NaN where there is no number.
    """

    mean: str
    std: str = ""
    rank: Rank = 0
    numeric: bool = True
    value: float = float("nan")

    @property
    def text(self) -> str:
        """Both, as one reads them."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


@dataclass(frozen=True)
class Table:
    """Rows of values under columns; the first column names the row.

    Attributes:
        columns: C of them.
        rows: C values each: a spread over seeds, a number, text, or nothing.
        title: what the table shows.
        notice: what every reader must know, such as that the runs are of reduced scale.
        notes: sentences below the table.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    title: str = ""
    notice: str | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows as text, ranked."""
        by_column = [
            _ranked(column, [_cell(column, row[index]) for row in self.rows])
            for index, column in enumerate(self.columns)
        ]
        return tuple(zip(*by_column, strict=True))


def _cell(column: Column, value: Value) -> Cell:
    if value is None:
        return Cell(MISSING)
    if isinstance(value, str):
        return Cell(value, numeric=False)
    if not isinstance(value, Spread):
        return Cell(column.notation.text(value), value=float(value))
    mean, std = column.notation.text(value.mean), ""
    if column.spread and value.seeds > 1:
        std = column.notation.text(value.std)
        decimals = len(mean.partition(".")[2])
        # To no more decimals than the mean: 0.9000 ± 0.0000, whatever rounding left of a spread.
        if value.mean and len(std.partition(".")[2]) > decimals:
            std = f"{float(std):.{decimals}f}"
    return Cell(mean, std, value=value.mean)


def _ranked(column: Column, cells: list[Cell]) -> list[Cell]:
    """The cells, with the best and the second marked; what reads the same ranks the same."""
    if column.better is None:
        return cells
    written = {cell.mean: cell.value for cell in cells if cell.value == cell.value}
    order = sorted(written, key=written.__getitem__, reverse=column.better == "higher")
    if len(order) < 2:
        return cells
    ranks: dict[str, Rank] = {order[0]: 1}
    if len(order) > 2:
        ranks[order[1]] = 2
    return [
        Cell(cell.mean, cell.std, ranks.get(cell.mean, 0), cell.numeric, cell.value)
        for cell in cells
    ]


_Filled: TypeAlias = tuple[Column, Callable[[Group], Value]]
"""A column, and what stands in it for a group."""


def comparison_table(
    comparison: Comparison,
    target: float | None = None,
    notice: str | None = None,
    title: str = "Results",
    brief: bool = False,
) -> Table:
    """The results of a comparison, a row a rule.

    Args:
        comparison: the runs.
        target: the accuracy to reach, between 0 and 1; by default `comparison.target()`.
        notice: what every reader must know.
        title: above the table.
        brief: leave out what a terminal has no room for.
    """
    if target is None:
        target = comparison.target()
    further = [m for m in comparison.measured if m.key.partition("/")[0] not in DEFAULTS]
    scales = [m for m in comparison.measured if m.key.startswith(f"{ACCURACY.key}/")]
    columns: list[_Filled] = [
        (Column("Rule"), lambda group: group.label),
        (Column("Final accuracy", PERCENT, "higher", spread=True), Group.final),
        *map(_final, scales),
    ]
    if not brief:
        columns += [
            (Column("Best accuracy", PERCENT, "higher", spread=True), Group.best),
            (Column("Mean over rounds", PERCENT, "higher", spread=True), Group.mean),
        ]
    columns += map(_final, further if brief else (*further, *comparison.learnt))
    if target is not None:
        columns += _reach(target, brief)
    columns += [
        (Column("Server per round", MILLISECONDS, "lower"), lambda group: group.mean(SERVER)),
        (Column("Training per round", SECONDS), lambda group: group.mean(TRAIN)),
        (Column("Sent up", MEGABYTES), lambda group: group.total(BYTES_UP)),
    ]
    if not brief:
        columns.append((Column("Sent down", MEGABYTES), lambda group: group.total(BYTES_DOWN)))
    if comparison.loses_uploads:
        per_round = Column("Lost uploads per round", Notation(decimals=2))
        columns.append((per_round, lambda group: group.mean(LOST)))
    if not brief:
        columns.append((Column("Rounds"), lambda group: float(len(group.rounds))))
    columns.append((Column("Seeds"), lambda group: float(len(group.runs))))
    rows = [tuple(fill(group) for _, fill in columns) for group in comparison.groups]
    heads = tuple(column for column, _ in columns)
    return Table(heads, tuple(rows), title, notice, notes=_notes(comparison, target))


def _final(metric: Metric) -> _Filled:
    """The column of a metric's last value."""
    base, _, scale = metric.key.partition("/")
    title = metric.title
    if metric.better is not None:  # one of fedhaw's own, whose title begins a line elsewhere
        title = title[0].lower() + title[1:]
    heading = f"Final, {scale} scale" if base == ACCURACY.key else f"Final {title}"
    column = Column(heading, metric.notation, metric.better, spread=True)
    return column, lambda group: group.final(metric)


def _reach(target: float, brief: bool) -> list[_Filled]:
    """The columns of rounds and seconds to a target."""

    def filled(of: Literal["rounds", "seconds"]) -> Callable[[Group], Value]:
        def fill(group: Group) -> Value:
            reach = group.reach(target)
            if 0 < reach.reached < reach.seeds:
                # A mean over the lucky seeds alone would flatter the rule.
                return f"{reach.reached} of {reach.seeds}"
            spread: Spread = getattr(reach, of)
            return spread if reach.reached else None

        return fill

    reached = f"{target * 100:g} %"
    return [
        (Column(f"Rounds to {reached}", COUNT, "lower", spread=not brief), filled("rounds")),
        (Column(f"Time to {reached}", SECONDS, "lower"), filled("seconds")),
    ]


def _notes(comparison: Comparison, target: float | None) -> tuple[str, ...]:
    notes = []
    if any(len(group.runs) > 1 for group in comparison.groups):
        notes.append("± is the sample standard deviation over seeds.")
    if target is not None and any(ACCURACY.read(run).size for run in comparison.runs):
        notes.append(
            f"Time to {target * 100:g} % counts training and aggregation, not evaluation; a dash "
            "means that no seed reached the target, and 2 of 3 that only two of three seeds did."
        )
    return (*notes, *comparison.remarks)

"""Figures for a paper: drawn without pyplot, so nothing global is touched and no display needed."""

import io
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedhaw.history import Vector
from fedhaw.reports.comparison import Comparison, Group
from fedhaw.reports.holdings import draw_holdings
from fedhaw.reports.metrics import ACCURACY, LOST, Metric, learnt
from fedhaw.reports.names import file_name
from fedhaw.reports.styles import Style, styles
from fedhaw.reports.thinning import telling_rounds, telling_rounds_of_many

WIDTH = 7.16
"""Inches: two columns of a letter."""

MOST_NAMED = 8
"""With more numbers in a list than this, their lines are told apart by shade alone."""

MOST_BARS = 200
"""Beyond so many rounds, losses are an area in place of bars."""

LOSSES = "#7d8794"

# Cividis reads the same with any colour vision and in grey; its last yellows are too pale here.
SHARE_COLOURS = ListedColormap(matplotlib.colormaps["cividis"](np.linspace(0, 0.88, 256)))

BELOW: Mapping[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22)}
"""A legend outside the axes: the lines may go anywhere in them."""

MATPLOTLIB: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "text.parse_math": False,  # names come from files, and may hold a dollar sign
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.4,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "legend.fancybox": False,
    "pdf.fonttype": 42,  # whole TrueType fonts inside: publishers refuse type 3
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Picture:
    """A figure in both formats, ready to be written."""

    name: str
    png: bytes
    pdf: bytes


def draw_all(comparison: Comparison, notice: str | None = None) -> tuple[Picture, ...]:
    """Every figure the histories have something for.

    Args:
        comparison: the runs.
        notice: written into every figure, so that it cannot be cropped away unseen.
    """
    drawn: dict[str, Callable[[Comparison], Figure | None]] = {
        "accuracy": draw_accuracy,
        "weights": draw_weights,
        "holdings": draw_split,
    }
    for metric in dict.fromkeys(name for run in comparison.runs for name in run.metrics):
        drawn[file_name(metric, taken=drawn)] = partial(draw_learnt, name=metric)
    pictures = []
    with matplotlib.rc_context(MATPLOTLIB):
        for name, draw in drawn.items():
            figure = draw(comparison)
            if figure is None:
                continue
            if notice:
                figure.suptitle(notice, fontsize=8.5, color="#8a3b00", style="italic", wrap=True)
            png = _saved(figure, "png")
            figure.set_layout_engine("none")  # everything has found its place
            pictures.append(Picture(name, png, _saved(figure, "pdf")))
    return tuple(pictures)


def draw_accuracy(comparison: Comparison) -> Figure | None:
    """Accuracy after each round with a band over seeds; below it, how many uploads were lost."""
    measured = [group for group in comparison.groups if group.has(ACCURACY)]
    if not measured:
        return None
    lossy = comparison.loses_uploads
    figure = Figure(figsize=(WIDTH, 4.3 if lossy else 3.5), layout="constrained")
    if lossy:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
        _draw_losses(lower, comparison)
        bottom = lower
    else:
        upper = bottom = figure.subplots()
    style_of = styles(comparison)
    for group in measured:
        _draw_band(upper, group, style_of[group.label])
    upper.set_ylabel(ACCURACY.notation.titled(ACCURACY.title))
    upper.legend(loc="lower right", ncols=2 if len(measured) > 3 else 1, handlelength=3.2)
    _number_rounds(bottom, comparison)
    return figure


def draw_weights(comparison: Comparison) -> Figure | None:
    """How the weight of each client moves, a panel a rule; colour is the client's share of data."""
    shown = [group for group in comparison.groups if np.isfinite(group.runs[0].weights).any()]
    if not shown:
        return None
    columns = min(len(shown), 3)
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.0 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    shares = shown[0].runs[0].shares
    largest = float(np.nanmax(shares)) if np.isfinite(shares).any() else 1.0
    colours = ScalarMappable(Normalize(0, largest * 100), SHARE_COLOURS)
    for axes, group in zip(panels.flat, shown, strict=False):
        _draw_clients(axes, group, colours)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    for column in range(columns):
        last = (len(shown) - 1 - column) // columns
        panels[last, column].xaxis.set_tick_params(labelbottom=True)
        _number_rounds(panels[last, column], comparison)
    for row in panels:
        row[0].set_ylabel("Weight (%)")
    panels[0, 0].set_ylim(bottom=0)
    bar = figure.colorbar(colours, ax=panels, aspect=30, pad=0.015)
    bar.set_label("Client's share of the data (%)")
    bar.outline.set_visible(False)
    return figure


def draw_learnt(comparison: Comparison, name: str) -> Figure | None:
    """What rules learnt under a name; beside it, for rules with a list of it, each number."""
    number = learnt(name)[0]
    scalar = [group for group in comparison.groups if group.has(number)]
    listed = [g for g in comparison.groups if _lists(g, name).size]
    panels = bool(scalar) + len(listed)
    if not panels:
        return None
    columns = min(panels, 3)
    rows = math.ceil(panels / columns)
    # As many names side by side as there is room for: the layout would squeeze the axes instead.
    entry = 0.5 + 0.06 * max((len(group.label) for group in scalar), default=0)
    width = WIDTH if panels > 1 else max(0.6 * WIDTH, entry)
    abreast = max(1, min(len(scalar), int(width / columns / entry)))
    lines = math.ceil(len(scalar) / abreast)
    figure = Figure(figsize=(width, 2.9 * rows + 0.17 * max(0, lines - 2)), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[panels:]:
        unused.remove()
    style_of = styles(comparison)
    if scalar:
        first = axes.pop(0)
        for group in scalar:
            _draw_band(first, group, style_of[group.label], number)
        if first.get_ylim()[0] < 0 < first.get_ylim()[1]:
            first.axhline(0, color="#888888", linewidth=0.7, zorder=1)
        first.set(title=name, ylabel=name)
        first.legend(**BELOW, ncols=abreast, handlelength=2.4)
    for panel, group in zip(axes, listed, strict=False):
        _draw_list(panel, group, style_of[group.label], name)
    for panel in figure.axes:
        _number_rounds(panel, comparison)
    return figure


def draw_split(comparison: Comparison) -> Figure | None:
    """Who holds what: samples of each class held by each client."""
    run = comparison.runs[0]
    counts = run.label_counts
    if counts is None or not counts.any():
        return None
    clients, classes = counts.shape
    figure = Figure(
        figsize=(2.4 + 0.3 * min(classes, 60), 1.3 + 0.3 * min(clients, 60)), layout="constrained"
    )
    axes = figure.subplots()
    axes.grid(False)
    draw_holdings(counts, axes, "Samples of each class held by each client" + _whose(comparison))
    return figure


def _whose(comparison: Comparison) -> str:
    if comparison.same_split:
        return ""
    return f"\n(of {comparison.groups[0].label}, seed {comparison.runs[0].seed}; others differ)"


def _draw_band(axes: Axes, group: Group, style: Style, metric: Metric = ACCURACY) -> None:
    mean, std = (part * metric.notation.factor for part in group.per_round(metric))
    shown = telling_rounds(mean[None])
    rounds, mean, std = group.rounds[shown], mean[shown], np.nan_to_num(std[shown])
    front = 4 if group.rule == "fedhaw" else 3
    axes.plot(
        rounds,
        mean,
        color=style.light,
        linestyle=(0, style.dash) if style.dash else "-",
        linewidth=1.8 if group.rule == "fedhaw" else 1.3,
        zorder=front,
        label=group.label,
        marker="o" if len(rounds) == 1 else "",
        markersize=3,
    )
    if (std > 0).any():
        axes.fill_between(
            rounds, mean - std, mean + std, color=style.light, alpha=0.16, linewidth=0, zorder=2
        )


def _draw_losses(axes: Axes, comparison: Comparison) -> None:
    """Bars where all rules saw the same losses, as they should; lines where they did not."""
    longest = max(comparison.groups, key=lambda group: len(group.rounds))
    everywhere = longest.per_round(LOST)[0]
    if comparison.loses_alike and len(everywhere) <= MOST_BARS:
        axes.bar(longest.rounds, everywhere, width=0.8, color=LOSSES, zorder=3)
    elif comparison.loses_alike:
        shown = telling_rounds(everywhere[None])
        axes.fill_between(
            longest.rounds[shown], everywhere[shown], step="mid", color=LOSSES, linewidth=0
        )
    else:
        style_of = styles(comparison)
        for group in comparison.groups:
            line, colour = group.per_round(LOST)[0], style_of[group.label].light
            shown = telling_rounds(line[None])
            axes.step(group.rounds[shown], line[shown], where="mid", color=colour, lw=1)
    many = any(len(group.runs) > 1 for group in comparison.groups)
    axes.set_ylabel("Lost uploads\n(mean of seeds)" if many else "Lost uploads")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _draw_clients(axes: Axes, group: Group, colours: ScalarMappable) -> None:
    weights, run, whose = group.mean_by_client()
    shares = np.nan_to_num(run.shares * 100)
    shown = telling_rounds_of_many(weights.T)
    for index in np.argsort(shares):
        present = shown[np.isfinite(weights[shown, index])]
        axes.plot(
            group.rounds[present],
            weights[present, index] * 100,
            color=colours.to_rgba(shares[index]),
            linewidth=1.1,
        )
    axes.set_title(group.label + whose)


def _lists(group: Group, name: str) -> Vector:
    """(T, L) the mean over seeds of a metric that is a list; empty where it is none."""
    each = [run.metrics[name] for run in group.runs if name in run.metrics]
    if not each or each[0].ndim != 2 or len({values.shape for values in each}) > 1:
        return np.empty(0)
    return np.asarray(np.mean(each, axis=0))


def _draw_list(axes: Axes, group: Group, style: Style, name: str) -> None:
    values = _lists(group, name)
    count = values.shape[1]
    shown = telling_rounds_of_many(values.T)
    for place in range(count):
        axes.plot(
            group.rounds[shown],
            values[shown, place],
            color=style.light,
            alpha=1.0 if count == 1 else 0.35 + 0.65 * place / (count - 1),
            linewidth=1.3,
            label=str(place + 1),
        )
    if 1 < count <= MOST_NAMED:
        axes.legend(**BELOW, ncols=min(count, 4))
    axes.set(title=f"{group.label}: each {name}", ylabel=name)


def _number_rounds(axes: Axes, comparison: Comparison) -> None:
    last = max(float(group.rounds[-1]) for group in comparison.groups)
    axes.set_xlabel("Communication round")
    axes.set_xlim(0, last + max(0.6, last / 100))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 2.5, 5, 10]))


def _saved(figure: Figure, kind: Literal["png", "pdf"]) -> bytes:
    out = io.BytesIO()
    # Without dates and versions inside, the same histories give the same bytes.
    without: dict[str, Any] = (
        {"Software": None} if kind == "png" else {"CreationDate": None, "Producer": None}
    )
    with warnings.catch_warnings():
        # A name or a title may be in a script that the font lacks; it is whole in table and page.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(out, format=kind, dpi=200, metadata=without)
    return out.getvalue()

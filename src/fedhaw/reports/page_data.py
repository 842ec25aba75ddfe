"""What the page draws: curves with their spread, a panel of clients for each rule, who holds what.

Long runs are thinned here, each plot to the rounds that tell something; the table beside the plots
is made of all rounds.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhaw.history import Vector
from fedhaw.reports.comparison import Comparison, Group
from fedhaw.reports.metrics import ANY, LOST, PERCENT, SERVER, TRAIN, Metric, Notation
from fedhaw.reports.styles import styles
from fedhaw.reports.thinning import MOST_ROUNDS, telling_rounds, telling_rounds_of_many

MOST_CLIENTS = 60
"""Lines in one panel of clients; beyond that, the clients with most data are drawn."""

REMARKS = {LOST.key: "Uploads that did not arrive; the server went on with the model it had sent."}


def page_data(comparison: Comparison) -> dict[str, Any]:
    """What the page's script draws; rules are known by their place in `rules`."""
    style_of = styles(comparison)
    longest = max((len(group.rounds) for group in comparison.groups), default=0)
    return {
        "rules": [
            {
                "label": group.label,
                "rule": group.rule,
                "light": style_of[group.label].light,
                "dark": style_of[group.label].dark,
                "dash": list(style_of[group.label].dash),
                "seeds": list(group.seeds),
            }
            for group in comparison.groups
        ],
        "lastRound": longest,
        "metrics": [_metric(comparison, metric, longest) for metric in comparison.metrics],
        "lost": LOST.key if comparison.loses_uploads else None,
        "lostAlike": comparison.loses_alike,
        "thinned": f"Drawn are about {MOST_ROUNDS} of {longest:,} rounds, those with the highest "
        "and lowest values among them; the table is made of all."
        if longest > MOST_ROUNDS
        else "",
        "clients": _clients(comparison),
        "holdings": _holdings(comparison),
    }


def _metric(comparison: Comparison, metric: Metric, longest: int) -> dict[str, object]:
    means = [group.per_round(metric)[0] for group in comparison.groups]
    curves = np.full((len(means), longest), np.nan)
    for row, mean in zip(curves, means, strict=True):
        row[: len(mean)] = mean
    shown = telling_rounds(curves)
    return {
        "key": metric.key,
        "title": metric.title,
        "heading": metric.notation.titled(metric.title),
        **_notation(metric.notation),
        "log": _spans_decades(comparison, metric),
        "note": REMARKS.get(metric.key, ""),
        "rounds": (shown + 1).tolist(),
        "series": [
            _series(group, metric, shown[shown < len(group.rounds)]) for group in comparison.groups
        ],
    }


def _notation(notation: Notation) -> dict[str, int | None]:
    return {"decimals": notation.decimals, "significant": notation.significant}


def _series(group: Group, metric: Metric, shown: NDArray[np.int64]) -> dict[str, object] | None:
    if not group.has(metric):
        return None
    values = group.values(metric)
    factor = metric.notation.factor
    mean, spread = (part[shown] * factor for part in group.per_round(metric))
    seeds = [_numbers(row[shown] * factor) for row in values] if len(values) > 1 else None
    return {
        # As many digits as it takes to be written as the table writes it.
        "mean": _numbers(mean, digits=9),
        "spread": _numbers(spread, digits=9) if np.isfinite(spread).any() else None,
        "seeds": seeds,
    }


def _spans_decades(comparison: Comparison, metric: Metric) -> bool:
    """Whether one rule's times would press all the others' onto the axis."""
    means = [group.mean(metric).mean for group in comparison.groups]
    positive = [mean for mean in means if mean > 0]
    return metric in (SERVER, TRAIN) and bool(positive) and max(positive) > 100 * min(positive)


def _clients(comparison: Comparison) -> list[dict[str, object]]:
    """What is known of each client round by round: its weight, and what rules learnt of it."""
    quantities = [_quantity(comparison, "Weight", None, PERCENT)]
    quantities += [
        _quantity(comparison, name, name, ANY)
        for name in dict.fromkeys(name for run in comparison.runs for name in run.client_metrics)
    ]
    return [quantity for quantity in quantities if quantity["panels"]]


def _quantity(
    comparison: Comparison, title: str, name: str | None, notation: Notation
) -> dict[str, object]:
    panels, most, top = [], 0, 0.0
    for index, group in enumerate(comparison.groups):
        values, run, whose = group.mean_by_client(name)
        if not np.isfinite(values).any():
            continue
        order = np.argsort(-np.nan_to_num(run.shares), kind="stable")[:MOST_CLIENTS]
        curves = values[:, order].T * notation.factor
        shown = telling_rounds_of_many(curves)
        most, top = max(most, len(run.clients)), max(top, float(np.nanmax(values)))
        panels.append(
            {
                "rule": index,
                "title": group.label + whose,
                "clients": [run.clients[k] for k in order],
                "shares": _numbers(run.shares[order]),
                "rounds": (shown + 1).tolist(),
                "values": [_numbers(curve[shown], digits=5) for curve in curves],
            }
        )
    more = f"The {MOST_CLIENTS} clients with most data, of {most}." if most > MOST_CLIENTS else ""
    return {
        "title": f"{title[:1].upper()}{title[1:]} of each client",
        "heading": notation.titled(title),
        **_notation(notation),
        "top": top * notation.factor * 1.05 if name is None else None,
        "note": more,
        "panels": panels,
    }


def _holdings(comparison: Comparison) -> dict[str, object] | None:
    run = comparison.runs[0] if comparison.runs else None
    if run is None or run.label_counts is None or not run.label_counts.any():
        return None
    note = "Samples of each class held by each client."
    if not comparison.same_split:
        note += f" This is {comparison.groups[0].label}, seed {run.seed}; other runs differ."
    return {"clients": list(run.run.clients), "counts": run.label_counts.tolist(), "note": note}


def _numbers(values: Vector, digits: int = 6) -> list[float | None]:
    """So many significant digits, more than a plot shows; JSON has no NaN."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]

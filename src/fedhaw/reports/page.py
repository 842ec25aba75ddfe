"""One HTML page with everything in it: data, plots, table, and the library that draws.

The page asks nothing of the network. Its content policy lets only its own two scripts run, by
their checksums, and every text that comes from a file is escaped, so a run may be called anything.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from fedhaw.reports.comparison import Comparison, Group
from fedhaw.reports.labels import readable
from fedhaw.reports.metrics import LOST, SERVER, TRAIN, Metric
from fedhaw.reports.styles import Style, styles
from fedhaw.reports.table_formats import to_html
from fedhaw.reports.tables import Table

MOST_CLIENTS = 60
"""Lines in one panel of client weights; beyond that, the clients with most data are drawn."""

REMARKS = {
    LOST.key: "Uploads that did not arrive; the server went on with the model it had sent.",
}


def to_page(
    comparison: Comparison,
    table: Table,
    title: str,
    notice: str | None = None,
    files_beside: Sequence[str] = (),
) -> str:
    """The whole page.

    Args:
        comparison: the runs.
        table: shown as it stands, so that its numbers are those of the other formats.
        title: of the page.
        notice: a banner above everything.
        files_beside: relative addresses of files to offer for download.
    """
    from plotly.offline import get_plotlyjs

    assets = files("fedhaw.reports") / "assets"
    plotly = _inline_script(get_plotlyjs())
    script = _inline_script((assets / "page.js").read_text(encoding="utf-8"))
    return Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        hashes=f"{_checksum(plotly)} {_checksum(script)}",
        css=(assets / "page.css").read_text(encoding="utf-8"),
        title=html.escape(title),
        lead=html.escape(_lead(comparison)),
        notice=f'<p class="notice" role="note">{html.escape(notice)}</p>' if notice else "",
        tiles=_tiles(table),
        table=to_html(table),
        notes="".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes),
        settings=_settings(comparison),
        footer=_footer(comparison, files_beside),
        data=_inline_json(page_data(comparison)),
        plotly=plotly,
        script=script,
    )


def page_data(comparison: Comparison) -> dict[str, Any]:
    """What the page's script draws; rules are known by their place in `rules`."""
    style_of = styles(comparison)
    lost = [_numbers(group.per_round(LOST)[0]) for group in comparison.groups]
    clients, remark = _weights(comparison)
    return {
        "rules": [
            {
                "label": group.label,
                "rule": group.rule,
                "light": style_of[group.label].light,
                "dark": style_of[group.label].dark,
                "dash": _dash(style_of[group.label]),
                "seeds": list(group.seeds),
                "rounds": [int(number) for number in group.rounds],
            }
            for group in comparison.groups
        ],
        "lastRound": max(int(group.rounds[-1]) for group in comparison.groups),
        "metrics": [
            {
                "key": metric.key,
                "title": metric.title,
                "heading": metric.notation.titled(metric.title),
                "log": _spans_decades(comparison, metric),
                "note": REMARKS.get(metric.key, ""),
                "series": [_series(group, metric) for group in comparison.groups],
            }
            for metric in comparison.metrics
        ],
        "lost": lost if comparison.loses_uploads else None,
        "lostAlike": all(
            one[: len(other)] == other[: len(one)] for one in lost for other in lost[:1]
        ),
        "weights": clients,
        "weightsNote": remark,
        "holdings": _holdings(comparison),
    }


def _spans_decades(comparison: Comparison, metric: Metric) -> bool:
    """Whether one rule's times would press all the others' onto the axis."""
    means = [group.mean(metric).mean for group in comparison.groups]
    positive = [mean for mean in means if mean > 0]
    return metric in (SERVER, TRAIN) and bool(positive) and max(positive) > 100 * min(positive)


def _series(group: Group, metric: Metric) -> dict[str, Any] | None:
    values = group.values(metric)
    if not np.isfinite(values).any():
        return None
    factor, text = metric.notation.factor, metric.notation.text
    mean, spread = group.per_round(metric)
    return {
        "mean": _numbers(mean * factor),
        "spread": _numbers(spread * factor) if np.isfinite(spread).any() else None,
        "seeds": [_numbers(row * factor) for row in values],
        "text": [
            f"{text(m)} ± {text(s)}" if math.isfinite(s) else text(m)
            for m, s in zip(mean, spread, strict=True)
        ],
    }


def _weights(comparison: Comparison) -> tuple[list[dict[str, Any]], str]:
    panels, most = [], 0
    for index, group in enumerate(comparison.groups):
        weights, run, whose = group.mean_weights()
        if not np.isfinite(weights).any():
            continue
        order = np.argsort(-np.nan_to_num(run.shares), kind="stable")[:MOST_CLIENTS]
        most = max(most, len(run.clients))
        panels.append(
            {
                "rule": index,
                "title": group.label + whose,
                "clients": [run.clients[k] for k in order],
                "shares": _numbers(run.shares[order]),
                "weights": [_numbers(weights[:, k]) for k in order],
            }
        )
    if most > MOST_CLIENTS:
        return panels, f"The {MOST_CLIENTS} clients with most data, of {most}."
    return panels, ""


def _holdings(comparison: Comparison) -> dict[str, Any] | None:
    run = comparison.runs[0]
    if run.label_counts is None or not run.label_counts.any():
        return None
    note = "Samples of each class held by each client."
    if not comparison.same_split:
        note += f" This is {comparison.groups[0].label}, seed {run.seed}; other runs differ."
    return {"clients": list(run.clients), "counts": run.label_counts.tolist(), "note": note}


def _lead(comparison: Comparison) -> str:
    first = readable(comparison.runs[0])
    groups = comparison.groups
    seeds = sorted({run.seed for run in comparison.runs})
    longest = max(len(group.rounds) for group in groups)
    parts = [
        str(first.get("data", "")),
        f"{len(groups)} {'rule' if len(groups) == 1 else 'rules'}",
        f"{len(comparison.runs[0].clients)} clients",
        f"{longest} {'round' if longest == 1 else 'rounds'}",
        f"{len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}",
    ]
    return " · ".join(part for part in parts if part)


def _tiles(table: Table) -> str:
    """The best of the columns a hurried reader asks for first."""
    superlatives = {"Final accuracy": "Highest", "Rounds to": "Fewest", "Time to": "Least"}
    superlatives["Server"] = "Least time on the"
    tiles = []
    for index, column in enumerate(table.columns):
        asked = [word for start, word in superlatives.items() if column.title.startswith(start)]
        best = [row for row in table.cells if row[index].rank == 1]
        if not asked or not best:
            continue
        what = f"{asked[0]} {column.title[0].lower()}{column.title[1:]}"
        cell, names = best[0][index], ", ".join(row[0].mean for row in best)
        tiles.append(
            f'<li><span class="what">{html.escape(what)}</span>'
            f'<span class="value">{html.escape(f"{cell.text} {column.notation.unit}")}</span>'
            f'<span class="who">{html.escape(names)}</span></li>'
        )
    return "\n".join(tiles)


def _settings(comparison: Comparison) -> str:
    """What all runs share, then what is each rule's own."""
    described = [
        readable(group.runs[0]) | {"seeds": ", ".join(map(str, group.seeds))}
        for group in comparison.groups
    ]
    shared = {
        key: value
        for key, value in described[0].items()
        if all(one.get(key) == value for one in described)
    }
    blocks = [_definitions(shared)]
    for group, one in zip(comparison.groups, described, strict=True):
        own = {key: value for key, value in one.items() if key not in shared}
        if own:
            blocks.append(f'<h3 class="of">{html.escape(group.label)}</h3>{_definitions(own)}')
    return "".join(blocks)


def _definitions(settings: dict[str, str]) -> str:
    inside = "".join(
        f"<div><dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd></div>"
        for key, value in settings.items()
    )
    return f"<dl>{inside}</dl>" if inside else ""


def _footer(comparison: Comparison, files_beside: Sequence[str]) -> str:
    links = ", ".join(
        f'<a href="{html.escape(path, quote=True)}">{html.escape(path)}</a>'
        for path in files_beside
    )
    versions = sorted({run.run.fedhaw for run in comparison.runs})
    made = f"Made by fedhaw from {len(comparison.runs)} histories of fedhaw {', '.join(versions)}."
    return html.escape(made) + (f" Beside this page: {links}." if links else "")


def _dash(style: Style) -> str:
    return ",".join(f"{length:g}px" for length in style.dash) or "solid"


def _numbers(values: Iterable[float]) -> list[float | None]:
    """Six significant digits, more than any plot shows; JSON has no NaN."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _inline_json(value: Any) -> str:
    """JSON that no HTML parser takes for markup."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _inline_script(source: str) -> str:
    """A script that does not end its own element, with the line ends the browser will see."""
    return source.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _checksum(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

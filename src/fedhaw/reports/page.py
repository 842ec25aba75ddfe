"""One HTML page with everything in it: data, plots, table, and the library that draws.

The page asks nothing of the network. Its content policy lets only its own scripts run, by
their checksums, and every text that comes from a file is escaped, so a run may be called anything.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from fedhaw.reports.comparison import Comparison
from fedhaw.reports.labels import readable
from fedhaw.reports.page_data import page_data
from fedhaw.reports.table_formats import to_html
from fedhaw.reports.tables import Table

SCRIPTS: tuple[str, ...] = ("uplot.min.js", "plots.js", "page.js")

MOST_SAID = 12
"""What servers said beyond so many sentences is counted and not shown."""


def to_page(
    comparison: Comparison,
    table: Table,
    title: str,
    notice: str | None = None,
    files_beside: Sequence[str] = (),
    live: tuple[str, int] | None = None,
) -> str:
    """The whole page.

    Args:
        comparison: the runs.
        table: shown as it stands, so that its numbers are those of the other formats.
        title: of the page.
        notice: a banner above everything.
        files_beside: relative addresses of files to offer for download.
        live: for the page of a server that watches runs, which it asks for what is new: HTML on the
            runs that go on, and the version of what is shown.
    """
    section, names = "", SCRIPTS
    if live is not None:
        section = f'<div id="live" class="card" data-version="{live[1]}">{live[0]}</div>'
        names = (*SCRIPTS, "live.js")
    scripts = [_inline_script(_asset(name)) for name in names]
    return Template(_asset("page.html")).substitute(
        **parts(comparison, table, files_beside),
        hashes=" ".join(map(_checksum, scripts)),
        connect="'self'" if live else "'none'",
        css=_asset("uplot.min.css") + _asset("page.css"),
        title=html.escape(title),
        notice=f'<p class="notice" role="note">{html.escape(notice)}</p>' if notice else "",
        live=section,
        data=_inline_json(page_data(comparison)),
        # The library's licence asks to go with every copy.
        scripts=f"<!--\n{_asset('uplot.LICENSE')}\n-->\n"
        + "\n".join(f"<script>{script}</script>" for script in scripts),
    )


def parts(comparison: Comparison, table: Table, files_beside: Sequence[str] = ()) -> dict[str, str]:
    """The HTML that changes when rounds are added, by the id of its place."""
    return {
        "lead": html.escape(_lead(comparison)),
        "tiles": _tiles(table),
        "table": to_html(table),
        "notes": "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes),
        "said": _said(comparison),
        "settings": _settings(comparison),
        "footer": _footer(comparison, files_beside),
    }


def _asset(name: str) -> str:
    return (files("fedhaw.reports") / "assets" / name).read_text(encoding="utf-8")


def _lead(comparison: Comparison) -> str:
    groups = comparison.groups
    if not groups:
        return "No round is over yet."
    first = readable(comparison.runs[0])
    seeds = sorted({run.seed for run in comparison.runs})
    longest = max(len(group.rounds) for group in groups)
    parts = [
        Path(first.get("data", "")).name,
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


def _said(comparison: Comparison) -> str:
    """What the servers had to say of their rounds, such as whom they stopped trusting and when."""
    said = comparison.said
    if not said:
        return ""
    shown = (
        said
        if len(said) <= MOST_SAID
        else (*said[: MOST_SAID - 1], f"And {len(said) - MOST_SAID + 1} more.")
    )
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in shown)
    return (
        '<section class="card" aria-labelledby="said-title">'
        f'<h2 id="said-title">What the server said</h2><ul class="said">{items}</ul></section>'
    )


def _settings(comparison: Comparison) -> str:
    """What all runs share, then what is each rule's own."""
    described = [
        readable(group.runs[0]) | {"seeds": ", ".join(map(str, group.seeds))}
        for group in comparison.groups
    ]
    shared = {
        key: value
        for key, value in (described or [{}])[0].items()
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
    versions, count = sorted({run.run.fedhaw for run in comparison.runs}), len(comparison.runs)
    made = f"Made by fedhaw from {count} {'history' if count == 1 else 'histories'}"
    made += f" of fedhaw {', '.join(versions)}." if versions else "."
    return html.escape(made) + (f" Beside this page: {links}." if links else "")


def _inline_json(value: object) -> str:
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

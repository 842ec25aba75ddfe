"""Runs that go on, as the page of a report that keeps up with them.

Every look reads only the lines that were written since the last one. What is drawn is made anew
from all rounds, so after a look that took long the next one waits longer.
"""

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from fedhaw.history import FILE_NAME, History, HistoryError, HistoryFollower, find_histories
from fedhaw.loss_reasons import UPLINK
from fedhaw.reports.comparison import Comparison, compare
from fedhaw.reports.metrics import duration
from fedhaw.reports.page import parts, to_page
from fedhaw.reports.page_data import page_data
from fedhaw.reports.tables import Table, comparison_table
from fedhaw.rules.registry import title_of

PATIENCE = 5.0
"""A look that took a second is followed by so many without one."""

RECENT = 20
"""Rounds from whose pace the time left is told."""

MOST_LOST = 5
"""Clients named in a row; beyond that they are counted."""

SILENT = 60.0
"""Seconds without a new line after which a run that has not finished is said to be silent."""


@dataclass(frozen=True)
class News:
    """What the page shows, and the number by which it is known.

    Attributes:
        version: grows with every change.
        comparison: the runs that have a round.
        table: their numbers.
        live: HTML on how far each run is.
    """

    version: int
    comparison: Comparison
    table: Table
    live: str


class LivePage:
    """The page on all histories below some folders, also those that will be there later.

    Args:
        folders: where runs are, or will be.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._title = ", ".join(folder.resolve().name or str(folder) for folder in folders)
        self._followers: dict[Path, HistoryFollower] = {}
        self._lock = Lock()
        self._rest_until = 0.0
        self._news = self._made(0)

    def page(self) -> str:
        """The whole page, as it is now."""
        news = self._look()
        live = news.live, news.version
        return to_page(news.comparison, news.table, self._title, live=live)

    def news(self, seen: int) -> dict[str, Any] | None:
        """What a page that shows version `seen` has to change; None if nothing."""
        news = self._look()
        if news.version == seen:
            return None
        return {
            "version": news.version,
            "data": page_data(news.comparison),
            "parts": {**parts(news.comparison, news.table), "live": news.live},
        }

    def _look(self) -> News:
        with self._lock:
            begin = time.monotonic()
            if begin >= self._rest_until:
                for path in _found(self._folders):
                    self._followers.setdefault(path, HistoryFollower(path))
                changed = [follower.look() for follower in self._followers.values()]
                live = self._progress()
                if any(changed) or live != self._news.live:
                    self._news = self._made(self._news.version + 1)
                self._rest_until = begin + PATIENCE * (time.monotonic() - begin)
            return self._news

    def _made(self, version: int) -> News:
        runs = [
            History(content.run, tuple(content.records), content.finished, path)
            for path, follower in self._followers.items()
            if (content := follower.content).run is not None and content.records
        ]
        comparison = compare(runs) if runs else Comparison(())
        return News(version, comparison, comparison_table(comparison), self._progress())

    def _progress(self) -> str:
        if not self._followers:
            return f"<p>Waiting for a {FILE_NAME} in {html.escape(self._title)}.</p>"
        rows = "".join(
            _row(follower, title)
            for follower, title in zip(self._followers.values(), self._titles(), strict=True)
        )
        heads = "".join(
            f"<th scope='col'>{head}</th>" for head in ("Run", "Rounds", "", "Time left", "Lost")
        )
        return (
            '<div class="scroll" tabindex="0" role="region" aria-label="Progress"><table>'
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def _titles(self) -> list[str]:
        """What each run is called: by rule and seed, and where two are alike also by its folder."""
        runs = [follower.content.run for follower in self._followers.values()]
        titles = [f"{title_of(run.name)}, seed {run.seed}" if run else "" for run in runs]
        return [
            f"{title}, {self._place(path)}" if titles.count(title) > 1 else title
            for path, title in zip(self._followers, titles, strict=True)
        ]

    def _place(self, path: Path) -> str:
        """Where a history lies, from the watched folder on."""
        above = next(folder for folder in self._folders if path.is_relative_to(folder))
        return (above.resolve().name / path.relative_to(above).parent).as_posix()


def _found(folders: Sequence[Path]) -> list[Path]:
    """The histories there are; none is no mistake here."""
    found: list[Path] = []
    for folder in folders:
        try:
            found += find_histories([folder])
        except HistoryError:
            continue
    return found


def _row(follower: HistoryFollower, title: str) -> str:
    content = follower.content
    if content.run is None:
        said = follower.trouble or f"{follower.path} has no line yet."
        return f'<tr><td colspan="5">{html.escape(said)}</td></tr>'
    done, planned = len(content.records), content.run.rounds
    bar = f'<progress max="{planned}" value="{done}"></progress>' if planned else ""
    cells = [
        title,
        f"{done} of {planned}" if planned else str(done),
        None,
        follower.trouble or _left(follower, planned),
        _lost(follower),
    ]
    inside = "".join(
        f'<td class="{"lost" if place == 4 else ""}">'
        f"{bar if cell is None else html.escape(cell)}</td>"
        for place, cell in enumerate(cells)
    )
    return f"<tr>{inside}</tr>"


def _left(follower: HistoryFollower, planned: int | None) -> str:
    content = follower.content
    if content.finished:
        return "finished"
    try:
        silence = time.time() - follower.path.stat().st_mtime
    except OSError:
        silence = 0.0
    recent = [sum(record.seconds.values()) for record in content.records[-RECENT:]]
    pace = sum(recent) / len(recent) if recent else 0.0
    if silence > max(SILENT, 10 * pace):
        return f"silent for {duration(silence)}"
    if not planned or not recent:
        return ""
    return f"about {duration(pace * (planned - len(content.records)))}"


def _lost(follower: HistoryFollower) -> str:
    """Whom the last round lost, and why."""
    record = follower.content.records[-1] if follower.content.records else None
    if record is None or not record.lost:
        return ""
    # What the network lost is the usual; whatever else happened is said first.
    lost = sorted(record.lost.items(), key=lambda item: item[1] == UPLINK)
    said = ", ".join(f"client {client} ({reason})" for client, reason in lost[:MOST_LOST])
    more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
    return f"round {record.round + 1}: {said}{more}"

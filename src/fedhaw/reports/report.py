"""From folders of histories to a report: a page, tables and figures."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhaw.errors import FedhawError
from fedhaw.files import write_bytes
from fedhaw.reports.comparison import Comparison, load
from fedhaw.reports.page import to_page
from fedhaw.reports.table_formats import to_csv, to_latex, to_markdown
from fedhaw.reports.tables import Table, comparison_table


class ReportError(FedhawError, ValueError):
    """A report was asked for in a way that makes no sense."""


@dataclass(frozen=True, eq=False)
class Report:
    """What was written.

    Attributes:
        page: the HTML page.
        paths: every file, the page first.
        comparison: the runs behind it.
        table: the numbers in all of it.
    """

    page: Path
    paths: tuple[Path, ...]
    comparison: Comparison
    table: Table


def write_report(
    runs: Sequence[str | os.PathLike[str]] | Comparison,
    out: str | os.PathLike[str],
    title: str | None = None,
    notice: str | None = None,
    target: float | None = None,
) -> Report:
    """A comparison of runs, written down.

    Writes `report.html`, `table.md`, `table.csv`, `table.tex` and `figures/*.png` and `*.pdf`.
    Everything is made before the first file is written, and each file is replaced as a whole, the
    page last: a failure leaves an earlier report as it was, or newer files that are each complete.

    Args:
        runs: folders, searched recursively for histories, or a comparison that has been made.
        out: where to write; made if missing.
        title: of the page and the table; by default it names the rules.
        notice: what every reader must know, such as that the runs are of reduced scale; it is
            written into every table, figure and page.
        target: the accuracy, between 0 and 1, for the columns of rounds and time to reach it; by
            default one that about half of the rules reach.

    Raises:
        HistoryError: there are no histories, or one cannot be read.
        ReportError: the target is not between 0 and 1, or a text is not UTF-8.
        FileWriteError: a file could not be written.
    """
    check_target(target)
    for name, text in (("title", title), ("notice", notice)):
        if text is not None and text != text.encode(errors="replace").decode():
            raise ReportError(f"The {name} {text!r} is not text in UTF-8; write it in UTF-8.")
    # Only now: whoever wants a table alone need not wait for matplotlib.
    from fedhaw.reports.figures import draw_all

    comparison = runs if isinstance(runs, Comparison) else load(runs)
    title = title or _title(comparison)
    table = comparison_table(comparison, target, notice, title)
    pictures = draw_all(comparison, notice)
    contents: dict[str, bytes] = {
        "table.md": to_markdown(table).encode(),
        "table.csv": to_csv(table).encode(),
        "table.tex": to_latex(table).encode(),
    }
    for picture in pictures:
        contents[f"figures/{picture.name}.png"] = picture.png
        contents[f"figures/{picture.name}.pdf"] = picture.pdf
    contents["report.html"] = to_page(comparison, table, title, notice, list(contents)).encode()
    folder = Path(out)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    paths = [folder / name for name in contents]
    return Report(paths[-1], (paths[-1], *paths[:-1]), comparison, table)


def check_target(target: float | None) -> None:
    """A check of an accuracy to reach, for whoever runs something before it is reported."""
    if target is not None and not 0 < target <= 1:
        raise ReportError(
            f"The target accuracy {target} is not between 0 and 1; write 0.85 for 85 percent."
        )


def _title(comparison: Comparison) -> str:
    labels = [group.label for group in comparison.groups]
    if len(labels) == 1:
        return labels[0]
    if len(labels) > 6:
        return f"{len(labels)} rules compared"
    return f"{', '.join(labels[:-1])} and {labels[-1]}"

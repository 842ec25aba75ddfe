"""A table as Markdown, CSV, LaTeX, HTML, and text for a terminal."""

import csv
import html
import io
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedhaw.files import write_text
from fedhaw.reports.metrics import MISSING
from fedhaw.reports.tables import Cell, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def to_markdown(table: Table) -> str:
    """GitHub's Markdown; the best is bold, the second underlined."""
    marked = _marker("**{}**", "<ins>{}</ins>", _markdown_text)
    rows = [[marked(cell) for cell in row] for row in table.cells]
    head = [_markdown_text(column.heading) for column in table.columns]
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [_markdown_row(row, widths) for row in (head, rule, *rows)]
    above = [f"**{_markdown_text(table.title)}**", ""] if table.title else []
    if table.notice:
        above += [f"> **Note:** {_markdown_text(table.notice)}", ""]
    below = [line for note in table.notes for line in ("", _markdown_text(note))]
    return "\n".join([*above, *lines, *below]) + "\n"


def to_csv(table: Table) -> str:
    """Comma-separated values; means and spreads have a column each, missing values are empty."""
    head: list[str] = []
    for column in table.columns:
        head.append(column.heading)
        if column.spread:
            head.append(f"{column.heading}, std")
    if table.notice:
        head.append("Notice")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in table.cells:
        fields: list[str] = []
        for column, cell in zip(table.columns, row, strict=True):
            fields.append(_csv_text(cell))
            if column.spread:
                fields.append(cell.std)
        if table.notice:
            fields.append(table.notice)
        writer.writerow(fields)
    return out.getvalue()


def to_latex(table: Table) -> str:
    r"""A `table*` for booktabs; the best is bold, the second underlined."""
    marked = _marker(r"\textbf{{{}}}", r"\underline{{{}}}", _latex_text, r" $\pm$ ")
    lines = [r"% Needs \usepackage{booktabs}.", r"\begin{table*}", r"  \centering"]
    caption = " ".join(filter(None, [_sentence(table.title), table.notice, *table.notes]))
    if caption:
        lines.append(rf"  \caption{{{_latex_text(caption)}}}")
    lines += [
        rf"  \begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"    \toprule",
        _latex_row([_latex_heading(column.heading) for column in table.columns]),
        r"    \midrule",
        *(_latex_row([marked(cell) for cell in row]) for row in table.cells),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def to_html(table: Table) -> str:
    """A `<table>` whose rows carry their name and whose cells carry what they sort by."""
    marked = _marker("<strong>{}</strong>", "<u>{}</u>", html.escape, ' <span class="pm">±</span> ')
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{html.escape(column.heading)}'
        "</button></th>"
        for column in table.columns
    )
    body = []
    for row in table.cells:
        name = html.escape(row[0].mean, quote=True)
        cells = [f'<th scope="row"><span class="swatch"></span>{name}</th>']
        for cell in row[1:]:
            sort = f' data-value="{cell.value!r}"' if cell.value == cell.value else ""
            cells.append(f"<td{sort}>{marked(cell)}</td>")
        body.append(f'<tr data-label="{name}">{"".join(cells)}</tr>')
    return (
        f"<table><caption>{html.escape(table.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def to_rich(table: Table, remarks: bool = True) -> "RichTable":
    """For `rich.print`; the best is bold, the second underlined; the notes stand below."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=Text(table.title) if table.title else None,
        caption=Text("\n".join(_remarks(table))) if remarks else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for index, column in enumerate(table.columns):
        widest = max((len(row[index].text) for row in table.cells), default=1)
        heading = textwrap.wrap(column.heading, max(widest, 9), break_long_words=False)
        shown.add_column(
            Text("\n".join(heading), style="bold"),
            justify="right" if index else "left",
            min_width=widest,
            vertical="bottom",
        )
    styles = {0: "", 1: "bold green", 2: "underline"}
    for row in table.cells:
        # As spans: what fills a cell up to its width is not underlined.
        shown.add_row(*(Text.assemble((cell.text, styles[cell.rank])) for cell in row))
    return shown


def to_text(table: Table, width: int | None = None) -> str:
    """Plain text without colours, for logs and pipes; by default as wide as the table needs."""
    from rich.console import Console
    from rich.text import Text

    written = io.StringIO()
    console = Console(file=written, width=1000, color_system=None, legacy_windows=False)
    shown = to_rich(table, remarks=False)
    console.width = width or max(console.measure(shown).maximum, 80)
    console.print(shown)
    for remark in _remarks(table):
        console.print(Text(remark))
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def write_table(base: Path, table: Table, rows: str | None = None) -> tuple[Path, ...]:
    """The files of a table: BASE.md, BASE.csv (of `rows`, if that is given) and BASE.tex.

    Raises:
        FileWriteError: one of them cannot be written.
    """
    written = {"md": to_markdown(table), "csv": rows or to_csv(table), "tex": to_latex(table)}
    paths = tuple(base.with_name(f"{base.name}.{ending}") for ending in written)
    for path, text in zip(paths, written.values(), strict=True):
        write_text(path, text)
    return paths


def _remarks(table: Table) -> list[str]:
    return [remark for remark in (table.notice, *table.notes) if remark]


def _marker(
    best: str, second: str, escape: Callable[[str], str], plus_minus: str = " ± "
) -> Callable[[Cell], str]:
    """How a cell is written, given how the first two ranks are marked."""
    patterns = {0: "{}", 1: best, 2: second}

    def marked(cell: Cell) -> str:
        mean = patterns[cell.rank].format(escape(cell.mean))
        return f"{mean}{plus_minus}{escape(cell.std)}" if cell.std else mean

    return marked


def _markdown_row(cells: list[str], widths: list[int]) -> str:
    padded = [cells[0].ljust(widths[0])]
    padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return f"| {' | '.join(padded)} |"


def _markdown_text(text: str) -> str:
    one_line = " ".join(text.split()).replace("&", "&amp;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", one_line).replace("<", "&lt;")


def _csv_text(cell: Cell) -> str:
    if cell.mean == MISSING:
        return ""
    # A spreadsheet would run such a name as a formula.
    risky = not cell.numeric and cell.mean[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{cell.mean}" if risky else cell.mean


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", MISSING: "--", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def _latex_row(cells: list[str]) -> str:
    return f"    {' & '.join(cells)} \\\\"


def _latex_heading(heading: str) -> str:
    """On two lines: a table of ten numbers has no room for ten long headings."""
    lines = [_latex_text(line) for line in _two_lines(heading)]
    if len(lines) == 1:
        return lines[0]
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{lines[0]} \\ {lines[1]}\end{{tabular}}"


def _two_lines(heading: str) -> list[str]:
    """The heading in two parts, the longer as short as can be; a number keeps its per cent sign."""
    words = heading.replace(" %", "\xa0%").split(" ")
    halves = [(" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(1, len(words))]
    if not halves:
        return [heading]
    return [half.replace("\xa0", " ") for half in min(halves, key=lambda pair: max(map(len, pair)))]


def _sentence(text: str) -> str:
    return f"{text}." if text and not text.endswith((".", "!", "?")) else text

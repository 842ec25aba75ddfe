"""One table in every format: the same numbers, the same ranks, nothing breaks out."""

import csv
import html
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedhaw.reports import (
    Column,
    Notation,
    Spread,
    Table,
    comparison_table,
    load,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_rich,
    to_text,
)
from fedhaw.reports.metrics import MISSING, PERCENT, SECONDS

Writer = Callable[..., Path]
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def small(*accuracies: float, better: str = "higher") -> Table:
    assert better in ("higher", "lower")
    column = Column("Accuracy", PERCENT, "higher" if better == "higher" else "lower", spread=True)
    rows = tuple((f"r{i}", Spread(value, 0.01, 3)) for i, value in enumerate(accuracies))
    return Table((Column("Rule"), column), rows)


def body_numbers(text: str, label: str) -> list[str]:
    """The numbers of the one line (or table row) that starts with a label."""
    (line,) = [line for line in text.splitlines() if re.match(rf"[\s|]*{re.escape(label)}\b", line)]
    return NUMBER.findall(line.split(label, 1)[1])


def test_all_formats_say_the_same_numbers(sweep: Path) -> None:
    table = comparison_table(load([sweep]))
    plain_html = re.sub(r"<tr[^>]*>", "\n", to_html(table))
    plain_html = html.unescape(re.sub(r"<[^>]*>", " ", plain_html))
    read = list(csv.reader(io.StringIO(to_csv(table))))
    for row in table.cells:
        label = row[0].mean
        expected = [number for cell in row[1:] for number in NUMBER.findall(cell.text)]
        assert len(expected) > 12
        assert body_numbers(to_markdown(table), label) == expected
        assert body_numbers(to_latex(table).replace(r"\\", ""), label) == expected
        assert body_numbers(to_text(table), label) == expected
        assert body_numbers(plain_html, label) == expected
        (fields,) = [fields for fields in read if fields[0] == label]
        assert [n for field in fields[1:] for n in NUMBER.findall(field)] == expected


def test_the_numbers_are_those_of_the_histories(sweep: Path) -> None:
    comparison = load([sweep])
    table = comparison_table(comparison, target=0.8)
    for group, row in zip(comparison.groups, table.cells, strict=True):
        final = group.final()
        assert row[1].text == f"{final.mean * 100:.2f} ± {final.std * 100:.2f}"


def test_best_is_bold_and_second_underlined() -> None:
    table = small(0.8, 0.9, 0.7)
    assert " **90.00** ± 1.00 |" in to_markdown(table)
    assert "<ins>80.00</ins> ± 1.00" in to_markdown(table)
    assert r"\textbf{90.00} $\pm$ 1.00" in to_latex(table)
    assert r"\underline{80.00}" in to_latex(table)
    assert "<strong>90.00</strong>" in to_html(table)
    assert "<u>80.00</u>" in to_html(table)


def test_what_fills_a_cell_of_a_terminal_is_not_underlined() -> None:
    (underlined,) = (
        segment.text
        for segment in Console(width=60).render(to_rich(small(0.8, 0.9, 0.7)))
        if segment.style and segment.style.underline
    )
    assert underlined.startswith("80.00")


def test_what_reads_the_same_ranks_the_same() -> None:
    ranks = [row[1].rank for row in small(0.900001, 0.900002, 0.8, 0.7).cells]
    assert ranks == [1, 1, 2, 0]


def test_lower_can_be_better_and_nothing_is_best_of_one() -> None:
    assert [row[1].rank for row in small(0.3, 0.2, 0.4, better="lower").cells] == [2, 1, 0]
    assert [row[1].rank for row in small(0.3).cells] == [0]
    assert [row[1].rank for row in small(0.3, 0.3).cells] == [0, 0]


def test_a_single_seed_is_written_without_a_spread() -> None:
    table = Table(
        (Column("Rule"), Column("A", PERCENT, spread=True)), (("r", Spread(0.5, math.nan, 1)),)
    )
    assert table.cells[0][1].text == "50.00"


def test_partly_reached_targets_say_so(tmp_path: Path, write_history: Writer) -> None:
    for seed in range(3):
        write_history(tmp_path / str(seed), "fedavg", seed, 60)
    comparison = load([tmp_path])
    finals = sorted(group.best().mean for group in comparison.groups)
    best = sorted(max(run.accuracy) for run in comparison.runs)
    assert finals[0] < best[-1]
    target = (best[0] + best[1]) / 2
    table = comparison_table(comparison, target=target)
    column = next(i for i, c in enumerate(table.columns) if c.title.startswith("Rounds to"))
    assert table.cells[0][column].text == "2 of 3"
    assert comparison_table(comparison, target=1.0).cells[0][column].text == MISSING
    assert f",{MISSING}," not in to_csv(comparison_table(comparison, target=1.0))


def test_the_notice_is_in_every_format() -> None:
    table = Table((Column("Rule"), Column("N")), (("a", 1.0),), "T", notice="Reduced scale")
    for rendered in (to_markdown(table), to_csv(table), to_latex(table), to_text(table)):
        assert "Reduced scale" in rendered


NASTY = "a|b_c&d%<img src=x>$\\{`*\n=x"


def test_names_cannot_break_a_format() -> None:
    table = Table((Column("Rule"), Column("N")), ((NASTY, 1.0), ("=cmd()", 2.0)), NASTY, NASTY)
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines)
    assert "<img" not in to_markdown(table)
    assert "<img" not in to_html(table)
    assert r"a|b\_c\&d\%\textless{}img src=x\textgreater{}\$\textbackslash{}\{`* =x" in to_latex(
        table
    )
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows[1][0] == NASTY
    assert rows[2][0] == "'=cmd()"


@pytest.mark.parametrize(
    ("notation", "value", "text"),
    [
        (PERCENT, 0.88164, "88.16"),
        (SECONDS, 0.00014, "0.000140"),
        (SECONDS, 2.31493, "2.31"),
        (SECONDS, 2314.93, "2315"),
        (SECONDS, 0.0, "0"),
        (PERCENT, -1e-9, "0.00"),
        (PERCENT, math.nan, MISSING),
        (SECONDS, math.inf, MISSING),
    ],
)
def test_how_numbers_are_written(notation: Notation, value: float, text: str) -> None:
    assert notation.text(value) == text


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [(0.9, 1e-12, "0.900 ± 0.000"), (1.1364, 0.0036, "1.14 ± 0.00"), (0.0, 0.25, "0 ± 0.250")],
)
def test_a_spread_has_no_more_decimals_than_its_mean(mean: float, std: float, text: str) -> None:
    column = Column("Step", SECONDS, spread=True)
    assert Table((column,), ((Spread(mean, std, 5),),)).cells[0][0].text == text


@given(st.floats(1e-6, 1e12))
def test_significant_digits_keep_the_value(value: float) -> None:
    assert float(SECONDS.text(value)) == pytest.approx(value, rel=6e-3)


def test_the_brief_table_fits_a_terminal(sweep: Path) -> None:
    assert max(map(len, to_text(comparison_table(load([sweep]), brief=True)).splitlines())) <= 100

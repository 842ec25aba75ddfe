"""The figures in README and docs are those of the files that benchmarks wrote."""

import re
from pathlib import Path

import pytest
import record

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = sorted((ROOT / "benchmarks" / "results").glob("*.txt"))
MARK = re.compile(r'^<!-- figures: (\S+) "(.+)" -->\n+((?:\|.*\n)+)', re.MULTILINE)
MARKED = [
    pytest.param(page, *found.groups(), id=f"{page.name}: {found[2]}")
    for page in PAGES
    for found in MARK.finditer(page.read_text(encoding="utf-8"))
]


def says(shown: str, measured: str) -> bool:
    """Whether a cell is the file's, or its number with fewer digits."""
    try:
        number, exact = float(shown.rstrip(" %")), float(measured.rstrip(" %"))
    except ValueError:
        return shown == measured
    digits = len(shown.rstrip(" %").partition(".")[2])
    return abs(number - exact) <= 0.5 * 10.0**-digits * (1 + 1e-9)


@pytest.mark.parametrize(("page", "file", "title", "table"), MARKED)
def test_table_is_the_files(page: Path, file: str, title: str, table: str) -> None:
    tables = record.read(ROOT / "benchmarks" / "results" / file)
    (found,) = (rows for name, rows in tables.items() if name.startswith(title))
    for row, cells in record.parse(table).items():
        for column, shown in cells.items():
            assert says(shown, found[row][column]), (row, column, shown, found[row][column])


def test_every_table_of_speed_is_marked() -> None:
    fast = PAGES[0].read_text(encoding="utf-8").split("## Fast")[1].split("\n## ")[0]
    assert len(re.findall(r"^\|[-|:]+\|$", fast, re.MULTILINE)) == len(MARK.findall(fast)) > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_file_says_how_it_was_measured(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for part in ("command", "machine", "noise"):
        assert re.search(rf"^{part}: .+", text, re.MULTILINE), part
    assert all(record.read(file).values())


def test_record_is_read_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    with record.Record("tried", save=True) as tried:
        tried.table("one", ("rule", "ms"), [("FedAvg", "1.25"), ("FedHAW", "3.5")])
        tried.table("two", ("K", "s"), [(10, 1)])
    assert record.read(tmp_path / "tried.txt") == {
        "one": {"FedAvg": {"ms": "1.25"}, "FedHAW": {"ms": "3.5"}},
        "two": {"10": {"s": "1"}},
    }
    assert capsys.readouterr().out == (tmp_path / "tried.txt").read_text()


def test_failed_benchmark_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    with pytest.raises(ZeroDivisionError), record.Record("tried", save=True):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shown", "measured", "same"),
    [
        ("3.1", "3.14", True),
        ("25", "24.96", True),
        ("83 %", "83%", True),
        ("-", "-", True),
        ("3.2", "3.14", False),
        ("24", "24.96", False),
        ("", "1", False),
    ],
)
def test_figures_may_have_fewer_digits_but_no_others(shown: str, measured: str, same: bool) -> None:
    assert says(shown, measured) is same

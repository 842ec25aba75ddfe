"""The whole report on disk."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedhaw.files import FileWriteError
from fedhaw.history import HistoryError
from fedhaw.reports import Report, ReportError, to_html, write_report
from fedhaw.reports import report as report_module

Writer = Callable[..., Path]
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def embedded(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


def test_the_page_carries_the_table_and_the_last_value_of_each_curve(report: Report) -> None:
    page = report.page.read_text()
    assert to_html(report.table) in page
    accuracy = embedded(page)["metrics"][0]["series"]  # type: ignore[index]
    for row, series in zip(report.table.cells, accuracy, strict=True):
        assert series["text"][-1] == row[1].text


def test_every_table_carries_the_notice(report: Report) -> None:
    for path in report.paths:
        if path.suffix in (".md", ".csv", ".tex", ".html"):
            assert "Reduced scale: 5,000 images." in path.read_text()


def test_the_page_needs_no_network(report: Report) -> None:
    page = report.page.read_text()
    own = page.replace(page[page.index("plotly.js v") : page.rindex("<script>")], "")
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", own)
    assert "default-src 'none'" in own


def test_hostile_names_stay_text(tmp_path: Path, write_history: Writer) -> None:
    write_history(
        tmp_path / "runs", rounds=2, name=HOSTILE, config={"data": HOSTILE, HOSTILE: HOSTILE},
        clients={HOSTILE: {"examples": 3, "labels": [1, 2]}}, fedhaw=HOSTILE,
    )  # fmt: skip
    written = write_report([tmp_path / "runs"], tmp_path / "out", title=HOSTILE, notice=HOSTILE)
    page = written.page.read_text()
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == page.count("</script>") == 3
    assert embedded(page)["rules"][0]["label"] == HOSTILE  # type: ignore[index]


def test_an_empty_folder_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(HistoryError, match=r"^No history\.jsonl was found under .*\.$"):
        write_report([tmp_path / "runs"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_is_said_in_one_sentence(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "runs", rounds=2)
    (tmp_path / "out").write_text("a file, not a folder")
    with pytest.raises(FileWriteError, match=r"^Could not write .*\.$"):
        write_report([tmp_path / "runs"], tmp_path / "out")


def test_a_failure_leaves_the_earlier_report_alone(
    tmp_path: Path, write_history: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_history(tmp_path / "runs", rounds=2)
    first = write_report([tmp_path / "runs"], tmp_path / "out", title="First")
    before = {path: path.read_bytes() for path in first.paths}

    def fail(*_: object, **__: object) -> str:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(report_module, "to_page", fail)
    with pytest.raises(RuntimeError):
        write_report([tmp_path / "runs"], tmp_path / "out", title="Second")
    assert {path: path.read_bytes() for path in first.paths} == before
    assert {path for path in (tmp_path / "out").rglob("*") if path.is_file()} == set(before)


@pytest.mark.parametrize("target", [0.0, -1.0, 85.0, float("nan")])
def test_a_target_outside_0_to_1_is_refused(tmp_path: Path, target: float) -> None:
    with pytest.raises(ReportError, match=r"write 0.85 for 85 percent"):
        write_report([tmp_path], tmp_path / "out", target=target)


def test_unfinished_runs_are_reported_with_a_remark(tmp_path: Path, write_history: Writer) -> None:
    path = write_history(tmp_path / "runs", rounds=4, finished=False, config={"rounds": 9})
    path.write_bytes(path.read_bytes()[:-30])  # killed while writing
    written = write_report([tmp_path / "runs"], tmp_path / "out")
    for name in ("table.md", "table.tex", "report.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "FedHAW, seed 0: unfinished after 3 of 9 rounds." in text
    assert len(written.comparison.groups[0].rounds) == 3


def test_the_page_is_built_from_files_of_the_package() -> None:
    from importlib.resources import files

    assets = files("fedhaw.reports") / "assets"
    assert {item.name for item in assets.iterdir()} == {"page.css", "page.html", "page.js"}

"""The whole report on disk."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedhaw.files import FileWriteError
from fedhaw.history import EndRecord, HistoryError, Record, RoundRecord, RunRecord, encode
from fedhaw.reports import Report, ReportError, to_html, write_report
from fedhaw.reports import report as report_module

Writer = Callable[..., Path]
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def write_records(folder: Path, rounds: Sequence[RoundRecord], seed: int = 0) -> None:
    lines: list[Record] = [RunRecord("mine", {"name": "mine"}, seed=seed), *rounds, EndRecord()]
    (folder / "history.jsonl").write_bytes(b"".join(map(encode, lines)))


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded


def test_the_page_carries_the_table_and_the_last_value_of_each_curve(report: Report) -> None:
    page = report.page.read_text()
    assert to_html(report.table) in page
    accuracy = embedded(page)["metrics"][0]["series"]
    for row, series in zip(report.table.cells, accuracy, strict=True):
        assert f"{series['mean'][-1]:.2f} ± {series['spread'][-1]:.2f}" == row[1].text


def test_every_table_carries_the_notice(report: Report) -> None:
    for path in report.paths:
        if path.suffix in (".md", ".csv", ".tex", ".html"):
            assert "Reduced scale: 5,000 images." in path.read_text()


def test_the_page_needs_no_network(report: Report) -> None:
    page = report.page.read_text()
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert "default-src 'none'" in page
    assert "Copyright (c) 2022 Leon Sorokin" in page  # of the library inside


def test_the_page_is_small(report: Report) -> None:
    assert report.page.stat().st_size < 300_000


def test_hostile_names_stay_text(tmp_path: Path, write_history: Writer) -> None:
    write_history(
        tmp_path / "runs", rounds=2, name=HOSTILE, config={"data": HOSTILE, HOSTILE: HOSTILE},
        clients={HOSTILE: {"examples": 3, "labels": [1, 2]}}, fedhaw=HOSTILE,
    )  # fmt: skip
    written = write_report([tmp_path / "runs"], tmp_path / "out", title=HOSTILE, notice=HOSTILE)
    page = written.page.read_text()
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == page.count("</script>") == 4
    assert embedded(page)["rules"][0]["label"] == HOSTILE


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
    ours = {"page.css", "page.html", "page.js", "plots.js", "live.js"}
    theirs = {"uplot.LICENSE", "uplot.min.css", "uplot.min.js"}
    assert {item.name for item in assets.iterdir()} == ours | theirs


def test_a_data_file_is_called_by_its_name(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path / "runs", rounds=2, config={"data": "/home/me/my-images.npz"})
    page = write_report([tmp_path / "runs"], tmp_path / "out").page.read_text()
    assert '<p class="lead" id="lead">my-images.npz · ' in page


def test_whom_the_server_stopped_trusting_is_said(tmp_path: Path) -> None:
    note = "the server stopped trusting client <3>"
    lost = "nothing arrived; the model stayed"
    records = [
        RoundRecord(t, weights={"<3>": 1.0}, note={1: note, 2: lost, 3: lost}.get(t))
        for t in range(5)
    ]
    write_records(tmp_path, records, seed=4)
    page = write_report([tmp_path], tmp_path / "out").page.read_text()
    assert "<li>mine, seed 4, round 2: the server stopped trusting client &lt;3&gt;.</li>" in page
    assert "<li>mine, seed 4, 2 rounds, the first of them 3: nothing arrived" in page


def test_what_a_rule_says_of_each_client_is_drawn_like_its_weight(tmp_path: Path) -> None:
    trust = [{"a": 0.5, "b": -0.25}, {"b": -0.5}]
    records = [
        RoundRecord(t, metrics={"likeness": one, "step": 1.0}, weights={"a": 0.75, "b": 0.25})
        for t, one in enumerate(trust)
    ]
    write_records(tmp_path, records)
    page = write_report([tmp_path], tmp_path / "out").page.read_text()
    weights, learnt = embedded(page)["clients"]
    assert weights["panels"][0]["values"] == [[75, 75], [25, 25]]
    assert learnt["title"] == "Likeness of each client"
    assert learnt["panels"][0]["values"] == [[0.5, None], [-0.25, -0.5]]
    assert [m["title"] for m in embedded(page)["metrics"]][:1] == ["step"]

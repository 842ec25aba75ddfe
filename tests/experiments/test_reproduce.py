"""The letter's tables from runs, at the tiniest scale."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedhaw.experiments.job import Event
from fedhaw.experiments.letter import LetterConditions
from fedhaw.experiments.reproduce import ReproducePlan, Reproduction, reproduce
from fedhaw.experiments.server_time import Timing, server_time_table, server_times
from fedhaw.history import HistoryError
from fedhaw.reports import keep_histories, to_markdown


@pytest.fixture(scope="module")
def plan(data_sets: Path, tmp_path_factory: pytest.TempPathFactory) -> ReproducePlan:
    changes = (("data_dir", str(data_sets)), ("rounds", 5), ("train_samples", 1000))
    conditions = LetterConditions("tiny", changes=changes)
    out = tmp_path_factory.mktemp("reproduced")
    return ReproducePlan(("fedprox",), ("mnist",), (0, 1), conditions, out)


@pytest.fixture(scope="module")
def table(plan: ReproducePlan) -> Reproduction:
    """The one table of the plan, whose runs all tests read."""
    (table,) = reproduce(plan)
    return table


def test_a_table_has_both_numbers_a_verdict_and_the_notice(
    plan: ReproducePlan, table: Reproduction
) -> None:
    text = (plan.out / "fedprox-mnist-tiny.md").read_text()
    assert "Smaller than the letter's experiment: 5 of 200 rounds" in text
    assert "/ 49.24 below" in text
    assert "FedProx+HAW" in text
    assert "FedProx+HAW-auto" in text  # ours alone: no number of the letter beside it
    with (plan.out / "fedprox-mnist-tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(table.results) == 30
    assert {row["seeds"] for row in rows} == {"2"}
    assert all("Smaller" in row["notice"] for row in rows)


def test_our_numbers_are_those_of_the_histories(plan: ReproducePlan, table: Reproduction) -> None:
    cell = next(
        r
        for r in table.results
        if r.cell.row == "FedProx+HAW" and r.cell.column == "t3 = 2, authors"
    )
    values = []
    for seed in plan.seeds:
        folder = plan.out / "runs" / "mnist-tiny" / "alpha0.1-pe0.5-fedprox" / "fedhaw"
        lines = (folder / f"seed-{seed}" / "history.jsonl").read_text().splitlines()
        values.append(json.loads(lines[1 + 2])["evaluation"]["accuracy/authors"])
    assert cell.ours.mean == pytest.approx(50 * sum(values))


def test_a_table_is_made_of_kept_histories_without_data_or_runs(
    plan: ReproducePlan, table: Reproduction, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    keep_histories([plan.out / "runs"], kept)
    fewer = (("rounds", 5), ("train_samples", 1000), ("data_dir", str(tmp_path)))
    conditions = LetterConditions("tiny", changes=fewer, kept=kept)
    again = replace(plan, conditions=conditions, out=tmp_path / "again")
    (made,) = reproduce(again)
    assert to_markdown(made.shown()) == to_markdown(table.shown())
    assert "over 2 seeds /" in to_markdown(made.shown())
    shutil.rmtree(kept / "mnist-tiny" / "alpha0.1-pe0.5-fedprox" / "fedhaw" / "seed-1")
    (uneven,) = reproduce(again)
    assert "over 1 to 2 seeds /" in to_markdown(uneven.shown())
    shutil.rmtree(kept / "mnist-tiny" / "alpha0.1-pe0.5-fedprox" / "fedhaw-auto")
    (less,) = reproduce(again)
    assert {result.cell.row for result in less.results} == {"FedProx", "FedProx+HAW"}
    shutil.rmtree(kept)
    with pytest.raises(HistoryError, match="kept has no history of MNIST"):
        list(reproduce(again))


@pytest.mark.usefixtures("table")
def test_finished_cells_are_not_run_again(plan: ReproducePlan) -> None:
    events: list[Event] = []
    list(reproduce(plan, events.append))
    assert {event.kind for event in events} == {"skipped"}
    assert len(events) == 6


def test_server_times_are_kept_and_shown_as_multiples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedhaw.experiments import server_time

    monkeypatch.setattr(server_time, "OF_THE_LETTER", ("fedavg", "fedhaw"))
    store = tmp_path / "server-time.json"
    first = server_times("cpu", store)
    assert server_times("cpu", store) == first, "measured again"
    assert {(timing.rule, timing.backend) for timing in first} == {
        (rule, backend) for rule in ("fedavg", "fedhaw") for backend in ("torch", "numpy")
    }
    assert all(len(timing.runs) == 5 and min(timing.runs) > 0 for timing in first)

    made = [Timing("fedavg", "torch", (1.0, 2.0, 1.0)), Timing("fedhaw", "torch", (3.0, 9.0, 3.5))]
    text = to_markdown(server_time_table(made))
    assert "0.00056" in text
    fedhaw = next(line for line in text.splitlines() if line.startswith("| FedHAW"))
    assert "3.50" in fedhaw
    assert "3 to 4.5" in fedhaw
    assert "within" in fedhaw

"""The evidence for doing without tuning: how it is counted, and one run of it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedhaw.cli import main
from fedhaw.experiments.job import Event
from fedhaw.experiments.no_tuning import NoTuningPlan, data_names, evidence, no_tuning
from fedhaw.experiments.recipe import RecipeError
from fedhaw.experiments.scores import CellScores, Difference, Scores
from fedhaw.experiments.standings import Standings


def made_up(*final: float, first: float = 0.5, loss: float = 1.0) -> Scores:
    """Two rounds for each seed."""
    accuracy = np.array([[first, last] for last in final])
    return Scores(tuple(range(len(final))), accuracy, np.full(accuracy.shape, loss))


def cell(key: str = "one", **scores: Scores) -> CellScores:
    return CellScores(key, key, 0.1, scores)


def standings(*cells: CellScores) -> Standings:
    titles = {"fedavg": "FedAvg", "other": "Other", "auto": "Auto"}
    return Standings(cells, "auto", "fedavg", titles)


def test_ranks_count_from_the_best_and_equals_share_theirs() -> None:
    same = made_up(0.7, 0.8)
    ranks = cell(a=made_up(0.6, 0.6), b=same, c=same, d=made_up(0.9, 0.9)).ranks("final")
    assert ranks == {"d": 1.0, "b": 2.5, "c": 2.5, "a": 4.0}


def test_ranks_are_averaged_over_cells_for_each_accuracy() -> None:
    late, early = made_up(0.9, 0.9, first=0.1), made_up(0.8, 0.8, first=0.7)
    worst = made_up(0.2, 0.2, first=0.1)
    over = standings(
        cell("one", fedavg=worst, other=early, auto=late),
        cell("two", fedavg=worst, other=late, auto=made_up(0.1, 0.1, first=0.0)),
    )
    assert over.average_rank("auto", "final") == (1 + 3) / 2
    assert over.average_rank("auto", "mean") == (2 + 3) / 2
    assert over.average_rank("other", "mean") == (1 + 1) / 2


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.02, 0.03, 0.025], "better"),
        ([-0.02, -0.03, -0.025], "worse"),
        ([0.004, 0.004, 0.004], "even"),  # certain, but less than half a point
        ([0.10, -0.05, 0.04], "even"),  # large, but not certain
        ([0.2], "one seed"),
    ],
)
def test_a_difference_counts_when_it_is_large_and_certain(
    differences: list[float], verdict: str
) -> None:
    # The seeds differ far more among each other than the rules do: only pairs show anything.
    base = [0.2, 0.5, 0.7][: len(differences)]
    ours = made_up(*(b + d for b, d in zip(base, differences, strict=True)))
    found = Difference.between(ours, made_up(*base), "final")
    assert found.verdict == verdict
    assert found.mean == pytest.approx(np.mean(differences))


def test_a_difference_is_taken_over_the_seeds_both_have() -> None:
    found = Difference.between(made_up(0.8, 0.7, 0.1, 0.1, 0.1), made_up(0.7, 0.6), "final")
    assert found.mean == pytest.approx(0.1)


def test_divergence_counts_only_where_the_reference_survived() -> None:
    fine, broken = made_up(0.8, 0.8), made_up(0.8, 0.12)
    not_finite = made_up(0.8, 0.8, loss=math.nan)
    over = standings(
        cell("lost", fedavg=fine, other=broken, auto=fine),
        cell("nan", fedavg=fine, other=not_finite, auto=fine),
        cell("hopeless", fedavg=broken, other=broken, auto=broken),
        cell("other seed", fedavg=broken, other=made_up(0.12, 0.8), auto=fine),
    )
    assert over.divergences("other") == ("lost", "nan", "other seed")
    assert over.divergences("auto") == over.divergences("fedavg") == ()


def test_the_tables_say_how_often_and_where() -> None:
    over = standings(
        cell("one", fedavg=made_up(0.6, 0.62), other=made_up(0.9, 0.92), auto=made_up(0.8, 0.81)),
        cell("two", fedavg=made_up(0.6, 0.62), other=made_up(0.11, 0.9), auto=made_up(0.8, 0.61)),
    )
    fedavg, other, auto = over.overall_table("Scale tiny.").rows
    assert fedavg[3:5] == (1.0, 0.0), "better in the first cell, uncertain in the second"
    assert other[3:5] == (0.0, 1.0)
    assert other[-1] == 1.0
    assert auto[3:7] == (None,) * 4
    assert over.where("worse", "other", "final") == ("one",)

    by_cell = over.cell_table("Scale tiny.").cells
    reach = [(row[0].text, row[1].text, row[4].text) for row in by_cell]
    assert ("one", "FedAvg", "1 of 2") in reach, "the target is FedAvg's mean, 0.61"
    assert ("one", "Auto", "2.0 ± 0.0") in reach
    assert ("two", "Other", "1 of 2") in reach


def test_every_cell_that_was_promised_is_there(tmp_path: Path) -> None:
    cells = NoTuningPlan(data_names(), "full", tmp_path).cells
    count = {name: sum(cell.data == name for cell in cells) for name in data_names()}
    assert count == {"mnist-5k": 21, "mnist": 12, "cifar10": 2, "dogs": 4}
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.recipe.settings["client_update"] for cell in cells} == {"sgd", "sgd-wd", "adam"}
    quick = next(cell for cell in cells if cell.data == "mnist-5k")
    assert len(quick.seeds) == 5
    assert quick.seeds_of("fedlaw") == (5, 6, 7)


def test_the_grid_repeats_no_run_that_the_letters_rate_has(tmp_path: Path) -> None:
    plan = NoTuningPlan(("mnist-5k",), "small", tmp_path)
    by_rate = {rate: plan.grid_jobs(plan.cells[0], rate, (0,))[0] for rate in evidence()["grid"]}
    assert by_rate[1e-3].folder.parent.name == "fedhaw", "the letter's rate without losses"
    assert by_rate[1e-4].folder.parent.name == "fedhaw-grid-1e-04"
    assert {job.recipe.rule_options["eta_lambda"] for job in by_rate.values()} == {1e-2}


def test_an_unknown_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no data set 'svhn'; choose from mnist-5k"):
        NoTuningPlan(("svhn",), "tiny", tmp_path)


def test_a_tiny_one_runs_once_and_says_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(evidence(), "grid", [1e-4, 1e-3, 1e-2])
    quick = [name for name in evidence()["contenders"] if name != "fedlaw"]
    monkeypatch.setitem(evidence(), "contenders", quick)
    command = ["reproduce", "no-tuning", "--data", "mnist-5k", "--scale", "tiny", "--json"]
    with pytest.raises(SystemExit) as ending:
        main([*command, "--engine", "sequential", "--out", str(tmp_path)])
    assert not ending.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["notice"].startswith("Scale tiny. mnist-5k: 500 training samples, 3 rounds")
    assert list(told["contenders"]) == quick
    base = tmp_path / "no-tuning-mnist-5k-tiny-standings"
    for ending_ in ("md", "csv", "tex"):
        assert "Scale tiny." in base.with_suffix(f".{ending_}").read_text()

    # The chosen rate is the best of the grid on the first seed, and is then run on all seeds.
    key, chosen = next(iter(told["grid"].items()))
    runs = tmp_path / "runs" / "no-tuning" / key
    last = {}
    for rate, name in ((1e-4, "fedhaw-grid-1e-04"), (1e-3, "fedhaw"), (1e-2, "fedhaw-grid-1e-02")):
        lines = (runs / name / "seed-5" / "history.jsonl").read_text().splitlines()
        last[rate] = json.loads(lines[3])["evaluation"]["accuracy"]
    assert last[chosen] == max(last.values()) == told["cells"][key]["fedhaw-grid"]["final"][0]
    assert told["cells"][key]["fedhaw-grid"]["seeds"] == [5, 6]

    events: list[Event] = []
    no_tuning(NoTuningPlan(("mnist-5k",), "tiny", tmp_path), events.append)
    assert {event.kind for event in events} == {"skipped"}

"""Groups over seeds and their numbers, checked by hand."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedhaw.history import History, HistoryError, RoundRecord, RunRecord
from fedhaw.reports import Comparison, compare, load
from fedhaw.reports.metrics import BYTES_UP, LOST, SERVER

Writer = Callable[..., Path]


def write_accuracies(
    folder: Path, name: str, seed: int, values: Sequence[float | None], *, finished: bool = True
) -> None:
    lines: list[dict[str, object]] = [
        {"kind": "run", "format": 1, "name": name, "rule": {"name": name}, "seed": seed}
    ]
    for index, value in enumerate(values):
        seconds = {"train": 2.0, "aggregate": 0.5, "evaluate": 9.0}
        lost = {str(client): "uplink" for client in range(index)}
        record = {"kind": "round", "round": index, "accuracy": value, "seconds": seconds}
        lines.append(record | {"lost": lost, "bytes": {"up": 100, "down": 200}})
    if finished:
        lines.append({"kind": "end", "status": "finished"})
    path = folder / f"{name}-{seed}" / "history.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def labels(comparison: Comparison) -> list[str]:
    return [group.label for group in comparison.groups]


def test_numbers_by_hand(tmp_path: Path) -> None:
    write_accuracies(tmp_path, "fedavg", 0, [0.2, 0.8, 0.7])
    write_accuracies(tmp_path, "fedavg", 1, [0.4, 0.5, 0.9])
    (group,) = load([tmp_path]).groups
    assert group.label == "FedAvg"
    assert group.seeds == (0, 1)
    assert group.final().mean == pytest.approx(0.8)
    assert group.final().std == pytest.approx(statistics.stdev([0.7, 0.9]))
    assert group.best().mean == pytest.approx(0.85)
    assert group.mean().mean == pytest.approx((1.7 / 3 + 1.8 / 3) / 2)
    mean, std = (part[1] for part in group.per_round(load([tmp_path]).metrics[0]))
    assert (mean, std) == (pytest.approx(0.65), pytest.approx(statistics.stdev([0.8, 0.5])))
    reach = group.reach(0.7)
    assert (reach.reached, reach.seeds) == (2, 2)
    assert reach.rounds.mean == 2.5  # after rounds 2 and 3, counted from 1
    assert reach.seconds.mean == 2.5 * 2.5  # training and aggregation, not evaluation
    assert group.mean(SERVER).mean == 0.5
    assert group.mean(LOST).mean == 1.0
    assert group.total(BYTES_UP).mean == 300


def test_what_a_user_measures_is_not_taken_for_what_was_lost() -> None:
    measured = dict.fromkeys(("accuracy", "lost", "server", "client_loss"), 0.5)
    run = RunRecord("fedavg", {"name": "fedavg"})
    comparison = compare([History(run, [RoundRecord(0, measured)], finished=True)])
    assert not comparison.loses_uploads
    assert [metric.key for metric in comparison.measured] == list(measured)
    assert len({metric.key for metric in comparison.metrics}) == len(comparison.metrics)
    assert np.isnan(comparison.groups[0].mean(SERVER).mean)


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    write_accuracies(tmp_path, "fedavg", 0, [0.2, 0.8])
    (group,) = load([tmp_path]).groups
    assert np.isnan(group.final().std)
    assert np.isnan(group.per_round(load([tmp_path]).metrics[0])[1]).all()


def test_a_target_not_reached_by_all_is_not_averaged_away(tmp_path: Path) -> None:
    write_accuracies(tmp_path, "fedavg", 0, [0.2, 0.8])
    write_accuracies(tmp_path, "fedavg", 1, [0.2, 0.3])
    (group,) = load([tmp_path]).groups
    assert (group.reach(0.8).reached, group.reach(0.8).seeds) == (1, 2)
    assert group.reach(0.99).reached == 0


def test_rounds_without_evaluation_are_passed_over(tmp_path: Path) -> None:
    write_accuracies(tmp_path, "fedavg", 0, [None, 0.4, None, 0.6, None])
    (group,) = load([tmp_path]).groups
    assert (group.final().mean, group.best().mean, group.mean().mean) == (0.6, 0.6, 0.5)
    assert group.reach(0.5).rounds.mean == 4


def test_the_target_is_what_the_median_rule_reaches(tmp_path: Path) -> None:
    for name, final in {"a": 0.1, "b": 0.852, "c": 0.99}.items():
        write_accuracies(tmp_path, name, 0, [final])
    assert load([tmp_path]).target() == 0.85


@pytest.mark.parametrize(("final", "target"), [(0.85, 0.85), (0.29, 0.25), (0.03, 0.03), (0, None)])
def test_the_target_is_a_round_number(tmp_path: Path, final: float, target: float | None) -> None:
    write_accuracies(tmp_path, "a", 0, [final])
    assert load([tmp_path]).target() == target


def test_an_unfinished_seed_is_left_out_and_named(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path / "0", seed=0, rounds=6)
    write_history(tmp_path / "1", seed=1, rounds=3, finished=False, config={"rounds": 6})
    comparison = load([tmp_path])
    assert comparison.groups[0].seeds == (0,)
    assert comparison.remarks == ("FedHAW, seed 1: unfinished after 3 of 6 rounds; left out.",)


def test_if_no_seed_has_finished_all_count_up_to_their_common_round(
    tmp_path: Path, write_history: Writer
) -> None:
    for seed, rounds in enumerate((5, 3)):
        write_history(
            tmp_path / str(seed), seed=seed, rounds=rounds, finished=False, config={"rounds": 9}
        )
    comparison = load([tmp_path])
    (group,) = comparison.groups
    assert group.seeds == (0, 1)
    assert group.rounds.tolist() == [1, 2, 3]
    assert "FedHAW: compared over the 3 rounds that all its seeds have." in comparison.remarks


def test_a_run_without_rounds_is_named_and_not_counted(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "0", rounds=0, finished=False)
    with pytest.raises(HistoryError, match="None of the 1 histories has a round in it yet"):
        load([tmp_path])
    write_history(tmp_path / "1", seed=1, rounds=2)
    comparison = load([tmp_path])
    assert comparison.groups[0].seeds == (1,)
    assert comparison.remarks[0].endswith("history.jsonl has no rounds yet.")


def test_runs_of_different_settings_are_never_averaged(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "0", seed=0, rounds=2, config={"alpha": 0.1})
    write_history(tmp_path / "1", seed=1, rounds=2, config={"alpha": 1.0})
    assert labels(load([tmp_path])) == ["FedHAW (alpha=0.1)", "FedHAW (alpha=1)"]


def test_what_does_not_change_the_result_does_not_part_seeds(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "0", seed=0, rounds=2, config={"engine": "stacked", "workers": 1})
    write_history(tmp_path / "1", seed=1, rounds=2, config={"engine": "processes", "workers": 2})
    assert load([tmp_path]).groups[0].seeds == (0, 1)


def test_the_same_run_from_two_folders_is_told_apart(tmp_path: Path, write_history: Writer) -> None:
    for folder in ("monday", "tuesday"):
        for seed in range(2):
            write_history(tmp_path / folder / f"fedhaw-{seed}", seed=seed, rounds=2)
    comparison = load([tmp_path / "monday", tmp_path / "tuesday"])
    assert labels(comparison) == ["FedHAW [monday]", "FedHAW [tuesday]"]
    assert all(group.seeds == (0, 1) for group in comparison.groups)


def test_a_run_is_called_by_its_name_and_rules_have_their_order(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "1", "fedhaw", rounds=1)
    write_history(tmp_path / "2", "fedavg", rounds=1, name="FedProx")
    write_history(tmp_path / "3", "fedavg", rounds=1)
    assert labels(load([tmp_path])) == ["FedAvg", "FedProx", "FedHAW"]


def test_weights_are_averaged_only_over_the_same_split(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "0", seed=0, rounds=3)
    write_history(tmp_path / "1", seed=1, rounds=3)
    (group,) = load([tmp_path]).groups
    both = np.mean([run.weights for run in group.runs], axis=0)
    np.testing.assert_allclose(group.mean_by_client()[0], both)

    write_history(tmp_path / "1", seed=1, rounds=3, clients={"0": {"examples": 1, "labels": [1]}})
    (group,) = load([tmp_path]).groups
    np.testing.assert_array_equal(group.mean_by_client()[0], group.runs[0].weights)
    assert group.mean_by_client()[2] == " (seed 0)"


def test_a_description_as_the_simulation_writes_it_is_grouped_by_what_matters(
    tmp_path: Path, write_history: Writer
) -> None:
    def described(data: str, seed: int) -> dict[str, object]:
        rule = {"name": "fedhaw", "eta": 0.01}
        return {"data": {"name": data, "digest": f"d-{data}"}, "parts": f"p{seed}", "rule": rule,
                "initial_model": f"m{seed}", "also_scales": []}  # fmt: skip

    for data in ("mnist", "cifar10"):
        for seed in range(2):
            config = described(data, seed)
            write_history(tmp_path / data / str(seed), seed=seed, rounds=1, config=config)
    comparison = load([tmp_path])
    assert labels(comparison) == ["FedHAW (data=cifar10)", "FedHAW (data=mnist)"]
    assert all(group.seeds == (0, 1) for group in comparison.groups)


def test_runs_of_one_name_but_two_rules_are_told_apart(
    tmp_path: Path, write_history: Writer
) -> None:
    write_history(tmp_path / "0", "fedavg", seed=0, rounds=1, name="mine")
    write_history(tmp_path / "1", "fedadp", seed=1, rounds=1, name="mine")
    assert labels(load([tmp_path])) == ["mine (rule=fedavg)", "mine (rule=fedadp)"]

"""Reading histories, whole and broken."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedhaw.reports import HistoryError, find_histories, read_run, read_runs

Writer = Callable[..., Path]


def test_reads_a_finished_run(tmp_path: Path, write_history: Writer) -> None:
    run = read_run(write_history(tmp_path, "fedhaw", seed=2, rounds=5))
    assert (run.name, run.rule, run.seed, run.finished) == ("fedhaw", "fedhaw", 2, True)
    assert run.at("round").tolist() == [0, 1, 2, 3, 4]
    assert run.weights.shape == (5, 10)
    np.testing.assert_allclose(run.weights.sum(axis=1), 1)
    assert run.label_counts is not None
    np.testing.assert_allclose(run.label_counts.sum(axis=1) / run.label_counts.sum(), run.shares)


def test_reads_factors_of_each_layer(tmp_path: Path, write_history: Writer) -> None:
    run = read_run(write_history(tmp_path, "fedlws", rounds=4))
    assert run.layer_factors is not None
    assert run.layer_factors.shape == (4, 3)
    assert np.isnan(run.at("gamma")).all()


def test_a_history_cut_at_any_byte_keeps_its_whole_lines(
    tmp_path: Path, write_history: Writer
) -> None:
    path = write_history(tmp_path, rounds=3)
    whole = path.read_bytes()
    lines = whole.splitlines()
    for end in range(len(lines[0]), len(whole), 7):
        path.write_bytes(whole[:end])
        complete = [line for line in lines if line in whole[:end]]
        run = read_run(path)
        assert len(run.records) == sum(b'"kind": "round"' in line for line in complete)
        assert run.finished == (lines[-1] in complete)


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, write_history: Writer) -> None:
    path = write_history(tmp_path, rounds=3)
    lines = path.read_text().splitlines()
    lines[2] = lines[2][:40]
    path.write_text("\n".join(lines))
    with pytest.raises(HistoryError, match=r"Line 3 of .*history\.jsonl is not a JSON object; "):
        read_run(path)


def test_after_a_resume_the_later_record_of_a_round_counts(
    tmp_path: Path, write_history: Writer
) -> None:
    path = write_history(tmp_path, rounds=3, finished=False)
    again = json.dumps({"kind": "round", "round": 1, "accuracy": 0.5})
    path.write_text(path.read_text() + again + "\n" + '{"kind": "from the future"}\n')
    run = read_run(path)
    assert run.at("round").tolist() == [0, 1, 2]
    assert run.at("accuracy")[1] == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'no line of kind "run"'),
        ('{"kind": "run", "format": 2}\n', "format 2, and this version reads up to 1; upgrade"),
        ('{"kind": "run", "format": 1}\n{"kind": "round"}\n', "Line 2 of .* has round None"),
        ("[1, 2]\n{}\n", "Line 1 of .* is not a JSON object"),
    ],
)
def test_what_is_no_history_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(HistoryError, match=said) as refused:
        read_run(path)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_missing_and_wrong_values_are_nan(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(
        '{"kind": "run", "format": 1, "name": "x", "clients": {"0": {"labels": [1, 2]}, "1": 3}}\n'
        '{"kind": "round", "round": 0, "accuracy": null, "loss": NaN, "seconds": 3, "gamma": "x"}\n'
    )
    run = read_run(path)
    assert np.isnan([run.at("accuracy"), run.at("loss"), run.at("seconds", "train")]).all()
    assert run.label_counts is None
    assert np.isnan(run.shares).all()


def test_every_history_is_found_once(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path / "a" / "b")
    write_history(tmp_path / "a" / "c")
    assert len(find_histories([tmp_path, tmp_path / "a", tmp_path / "a" / "b"])) == 2
    assert len(read_runs([tmp_path / "a" / "b" / "history.jsonl"])) == 1


def test_an_empty_folder_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"^No history\.jsonl was found under .*\.$"):
        read_runs([tmp_path])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"There is no folder .*nowhere; give"):
        read_runs([tmp_path / "nowhere"])

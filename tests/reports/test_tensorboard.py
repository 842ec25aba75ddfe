"""Event files, read back with TensorBoard's own reader."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedhaw.history import History, RoundRecord
from fedhaw.reports import TensorBoardLog, TrackingError, write_tensorboard
from fedhaw.reports.tensorboard import scalars

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
Writer = Callable[..., Path]


def read_back(folder: Path) -> Any:
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def test_a_finished_history_becomes_scalars(tmp_path: Path, write_history: Writer) -> None:
    path = write_history(tmp_path / "runs", "fedhaw", seed=3, rounds=5)
    (folder,) = write_tensorboard([tmp_path / "runs"], tmp_path / "events")
    assert folder == tmp_path / "events" / "fedhaw" / "seed-3"
    run, events = History.read(path), read_back(folder)
    accuracy = events.Scalars("accuracy")
    assert [event.step for event in accuracy] == [0, 1, 2, 3, 4]
    assert [event.value for event in accuracy] == pytest.approx(run.accuracy, rel=1e-6)
    assert events.Scalars("weights/7")[-1].value == pytest.approx(run.weights[-1, 7], rel=1e-6)
    assert events.Scalars("lost_uploads")[2].value == len(run.records[2].lost)
    assert {"gamma", "loss", "seconds/train", "bytes/up", "client_loss"} <= set(
        events.Tags()["scalars"]
    )
    # 2026-01-05T10:00:00Z, and then as long as the rounds took.
    assert 0 < accuracy[0].wall_time - 1767607200 < 1
    assert accuracy[4].wall_time - accuracy[0].wall_time > 1


def test_what_is_called_alike_has_tags_of_its_own() -> None:
    record = RoundRecord(
        0, {"client_loss": 5.0}, {"lost_uploads": 6.0}, lost={"1": "uplink"}, client_loss={"0": 2.0}
    )
    assert scalars(record) == {
        "lost_uploads": 1,
        "client_loss": 2.0,
        "evaluation/client_loss": 5.0,
        "rule/lost_uploads": 6.0,
    }


def test_layers_have_a_tag_each(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path / "runs", "fedlws", rounds=2)
    (folder,) = write_tensorboard([tmp_path / "runs"], tmp_path / "events")
    tags = read_back(folder).Tags()["scalars"]
    assert {"gamma/0", "gamma/1", "gamma/2"} <= set(tags)
    assert "gamma" not in tags


def test_rounds_can_be_watched_while_the_run_goes_on(tmp_path: Path, write_history: Writer) -> None:
    records = History.read(write_history(tmp_path / "runs", rounds=2)).records
    with TensorBoardLog(tmp_path / "live") as log:
        log.on_round(records[0])
        assert len(read_back(tmp_path / "live").Scalars("accuracy")) == 1
        log.on_round(records[1])
        assert len(read_back(tmp_path / "live").Scalars("accuracy")) == 2


def test_runs_of_one_name_and_seed_do_not_mix_and_names_stay_inside(
    tmp_path: Path, write_history: Writer
) -> None:
    for folder in "ab":
        write_history(tmp_path / "runs" / folder, rounds=1, name="../../x")
    folders = write_tensorboard([tmp_path / "runs"], tmp_path / "events")
    assert [folder.relative_to(tmp_path).as_posix() for folder in folders] == [
        "events/_.._x/seed-0",
        "events/_.._x/seed-0-2",
    ]


def test_without_tensorboard_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(
        TrackingError, match=r"not installed; run: pip install 'fedhaw\[tracking\]'"
    ):
        TensorBoardLog(tmp_path)


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match=r"Could not write event files into .*file"):
        TensorBoardLog(tmp_path / "file")

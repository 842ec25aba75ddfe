"""Small copies of histories say the same as the histories."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedhaw.history import History, HistoryError, find_histories
from fedhaw.reports import keep_histories, write_report

Writer = Callable[..., Path]


def test_a_copy_is_smaller_and_reads_alike(tmp_path: Path, write_history: Writer) -> None:
    path = write_history(tmp_path / "runs" / "a" / "seed-0", "fedhaw", rounds=40)
    (copy,) = keep_histories([tmp_path / "runs"], tmp_path / "kept")
    assert copy == tmp_path / "kept" / "a" / "seed-0" / "history.jsonl.gz"
    assert copy.stat().st_size < path.stat().st_size / 4
    whole, kept = History.read(path), History.read(copy)
    assert kept.finished
    assert kept.run == whole.run
    np.testing.assert_allclose(kept.accuracy, whole.accuracy, atol=5e-5)
    np.testing.assert_allclose(kept.metrics["gamma"], whole.metrics["gamma"], atol=5e-5)
    np.testing.assert_allclose(kept.weights, whole.weights, atol=5e-5)
    assert [r.lost for r in kept.records] == [r.lost for r in whole.records]


def test_runs_of_one_name_in_two_folders_are_both_kept(
    tmp_path: Path, write_history: Writer
) -> None:
    folders = [tmp_path / "runs" / day for day in ("monday", "tuesday")]
    for rule, folder in zip(("fedavg", "fedhaw"), folders, strict=True):
        write_history(folder / "seed-0", rule, rounds=4)
    copies = keep_histories(folders, tmp_path / "kept")
    assert [copy.parent.relative_to(tmp_path / "kept") for copy in copies] == [
        Path("monday/seed-0"), Path("tuesday/seed-0")
    ]  # fmt: skip
    assert [History.read(copy).run.name for copy in copies] == ["fedavg", "fedhaw"]


def test_the_same_history_gives_the_same_bytes(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path / "runs", rounds=4)
    first, second = (keep_histories([tmp_path / "runs"], tmp_path / k)[0] for k in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_a_report_is_built_from_copies(tmp_path: Path, write_history: Writer) -> None:
    for rule in ("fedavg", "fedhaw"):
        write_history(tmp_path / "runs" / rule, rule, rounds=5)
    keep_histories([tmp_path / "runs"], tmp_path / "kept")
    assert len(find_histories([tmp_path / "kept"])) == 2
    report = write_report([tmp_path / "kept"], tmp_path / "out")
    assert [group.rule for group in report.comparison.groups] == ["fedavg", "fedhaw"]


@pytest.mark.parametrize("damage", [b"", b"not compressed"])
def test_a_damaged_copy_is_named(tmp_path: Path, write_history: Writer, damage: bytes) -> None:
    write_history(tmp_path / "runs", rounds=4)
    (copy,) = keep_histories([tmp_path / "runs"], tmp_path / "kept")
    copy.write_bytes(damage)
    with pytest.raises(HistoryError, match=re.escape(str(copy))):
        History.read(copy)

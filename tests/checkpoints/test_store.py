"""Generations: the last few are kept, and the last one that is whole is found."""

from pathlib import Path

import numpy as np
import pytest

from fedhaw.checkpoints import CheckpointError, CheckpointStore, Part
from fedhaw.files import FileWriteError, locked


def store(folder: Path, stem: str = "round", keep: int = 3) -> CheckpointStore:
    return CheckpointStore(folder, stem, keep, afresh="begin again")


def parts(number: int) -> dict[str, Part]:
    return {"run": Part({"numbers": np.full(9, float(number))}, {"round": number})}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    kept = store(tmp_path / "new")
    assert kept.latest() is None
    for number in (1, 2, 9, 10):
        file = kept.save(number, parts(number))
    assert file.name == "round-000010.safetensors"
    assert len(names(tmp_path / "new")) == 3
    latest = kept.latest()
    assert latest is not None
    assert latest["run"].facts == {"round": 10}
    assert kept.at(2)["run"].facts == {"round": 2}
    with pytest.raises(CheckpointError, match=r"no checkpoint of round 1 .* only 2, 9, 10; choose"):
        kept.at(1)
    kept.remove(after=2)
    assert names(tmp_path / "new") == ["round-000002.safetensors"]


def test_one_that_is_written_anew_stays_where_later_ones_do(tmp_path: Path) -> None:
    many, few = store(tmp_path), store(tmp_path, keep=1)
    for number in (1, 2, 3):
        many.save(number, parts(number))
    few.save(2, parts(7))
    assert names(tmp_path) == ["round-000002.safetensors", "round-000003.safetensors"]
    assert few.at(2)["run"].facts == {"round": 7}


def test_a_damaged_one_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = store(tmp_path)
    for number in (1, 2):
        kept.save(number, parts(number))
    (tmp_path / "round-000002.safetensors").write_bytes(b"gone")
    found = kept.latest()
    assert found is not None
    assert found["run"].facts == {"round": 1}
    assert "round-000002.safetensors is damaged" in caplog.text
    (tmp_path / "round-000001.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"Every checkpoint in .* is damaged .*; begin again"):
        kept.latest()


def test_leftovers_go_and_the_neighbours_stay(tmp_path: Path) -> None:
    ours = [".a-000007.safetensors.12.0badcafe.tmp", ".a.safetensors.12.0badcafe.tmp"]
    theirs = [".ab-000007.safetensors.12.0badcafe.tmp", "a.tmp", "a-7.safetensors", ".a.lock"]
    for name in (*ours, *theirs):
        (tmp_path / name).touch()
    kept = store(tmp_path, "a")
    kept.remove_leftovers()
    kept.remove()
    assert names(tmp_path) == sorted(theirs)


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    name = tmp_path / "new" / ".lock"
    with locked(name), pytest.raises(FileWriteError, match="Another run is writing"), locked(name):
        raise AssertionError("two held it")
    with locked(name):
        pass

"""Disks that are full or read-only: a clear sentence, and what was there stays."""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedhaw import FedHAW
from fedhaw.files import FileWriteError
from fedhaw.history import History, HistoryFile, RoundRecord, RunRecord, encode

Simulate = Callable[..., History]

HAW = FedHAW(0.1, 1e-3, 1e-2)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def whole(run: Simulate, **settings: Any) -> bytes:
    model = run(HAW, **settings).model
    assert model is not None
    return model.tobytes()


def test_a_full_disk_is_named_and_the_run_goes_on_once_there_is_room(
    run: Simulate, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    out = small_disk / "run"

    def fill_up(record: RoundRecord) -> None:
        if record.round == 5:
            free = os.statvfs(small_disk)
            filler.write_bytes(bytes(free.f_bavail * free.f_bsize))

    settings = {"rounds": 60, "model": "mlp-50", "checkpoint_every": 3}
    with pytest.raises(FileWriteError, match=r"Could not write .*No space left on device.*; free"):
        run(HAW, out=out, on_round=fill_up, **settings)
    assert (out / "checkpoints" / "round-000005.safetensors").exists()
    assert not list(out.rglob("*.tmp"))
    filler.unlink()
    model = run(HAW, out=out, **settings).model
    assert model is not None
    assert model.tobytes() == whole(run, **settings)


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    run: Simulate, tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(record: RoundRecord) -> None:
        # The history still fits below this, a checkpoint of 10 MB does not.
        if record.round == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))

    settings = {"rounds": 6, "model": "mlp-50000", "checkpoint_every": 2}
    try:
        with pytest.raises(FileWriteError, match=r"Could not write .*round-000005"):
            run(HAW, out=tmp_path, on_round=limit, **settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kept = sorted(file.name for file in (tmp_path / "checkpoints").iterdir())
    assert kept == ["round-000001.safetensors", "round-000003.safetensors"]
    model = run(HAW, out=tmp_path, **settings).model
    assert model is not None
    assert model.tobytes() == whole(run, **settings)


def test_a_line_that_does_not_fit_leaves_no_half_of_it(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "history.jsonl"
    file = HistoryFile(path)
    file.append(RunRecord("x", {"name": "x"}))
    before = path.read_bytes()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
        with pytest.raises(FileWriteError, match="Could not write"):
            file.append(RoundRecord(0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    file.append(RoundRecord(0))
    file.close()
    assert path.read_bytes() == before + encode(RoundRecord(0))


def test_a_read_only_disk_is_named_at_once(run: Simulate, small_disk: Path) -> None:
    run(HAW, out=small_disk / "run", rounds=2)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = (small_disk / "run" / "history.jsonl").read_bytes()
    for folder in ("run", "new"):
        with pytest.raises(FileWriteError, match=r"Could not write .*Read-only file system"):
            run(HAW, out=small_disk / folder, rounds=4)
    assert (small_disk / "run" / "history.jsonl").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named_at_once(run: Simulate, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileWriteError, match=r"Could not write .*file/run/history"):
        run(HAW, out=tmp_path / "file" / "run")

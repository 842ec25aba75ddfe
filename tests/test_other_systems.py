"""What only some systems have is taken away, as it would be on Windows or macOS."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fedhaw
from fedhaw import files
from fedhaw.experiments import backends
from fedhaw.rules import mapped_rows
from fedhaw.rules.threads import available_cores
from fedhaw.simulation.engines import WorkersFailed, worker_process
from fedhaw.simulation.engines.shared_memory import SharedTensor

ONLY_POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "pty")


def test_nothing_that_only_posix_has_is_needed_to_import(tmp_path: Path) -> None:
    """A process without these modules and functions imports every part, and simulates."""
    script = f"""
import os, signal, sys, importlib.util
for name in {ONLY_POSIX!r}:
    sys.modules.pop(name, None)
found = importlib.util.find_spec
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in {ONLY_POSIX!r}:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Without())
def find_spec(name, package=None):
    return None if name in {ONLY_POSIX!r} else found(name, package)
importlib.util.find_spec = find_spec
for name in ("memfd_create", "sched_getaffinity", "posix_fallocate"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("pthread_sigmask", "SIGKILL", "SIGHUP"):
    if hasattr(signal, name):
        delattr(signal, name)
import fedhaw, fedhaw.cli, fedhaw.reports, fedhaw.data, fedhaw.models, fedhaw.experiments
import fedhaw.simulation, fedhaw.hypergradient
from fedhaw.simulation.engines import worker_process
worker_process.SUPPORTED = False
history = fedhaw.simulate(
    fedhaw.FedAvg(), train_samples=200, clients=2, alpha=1.0, rounds=2, out="run"
)
print(len(history.records), fedhaw.files._fcntl)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["2", "None"], done.stderr


def test_without_locks_a_file_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_fcntl", None)
    with files.locked(tmp_path / "lock"), files.locked(tmp_path / "lock"):
        files.write_text(tmp_path / "a", "b")
    assert (tmp_path / "a").read_text() == "b"


def test_a_folder_that_cannot_be_opened_is_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, modes = os.open, []

    def like_windows(path: Any, flags: int, *rest: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied")
        modes.append(flags & os.O_RDWR)
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", like_windows)
    files.write_bytes(tmp_path / "a", b"b")
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"b"
    assert modes == [os.O_RDWR]  # Windows refuses to flush a file that was opened to be read


def test_shared_memory_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedTensor.of(torch.arange(6.0).reshape(2, 3))
    again = shared.handle.open()
    again[1, 2] = 7.0
    assert shared.tensor[1, 2] == 7.0
    shared.close()


def test_mapped_rows_without_fallocate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    rows = mapped_rows._mapped(2, 16)
    rows[1] = 3
    assert rows.shape == (2, 16)
    assert rows[1].sum() == 48


def test_cores_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert available_cores() >= 1


def test_sweeps_side_by_side_without_masks_of_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise AssertionError("Windows cannot start this process")

    monkeypatch.delattr(signal, "pthread_sigmask")
    monkeypatch.setattr("multiprocessing.resource_tracker.ensure_running", start)
    with worker_process.deaf_to_interrupts():
        assert list(backends._by_joblib(1)(print, [])) == []


def test_without_worker_processes_auto_takes_another_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_process, "SUPPORTED", False)
    settings: dict[str, Any] = {"train_samples": 60, "clients": 2, "alpha": 1.0, "rounds": 1}

    def own(module: torch.nn.Module, x: Any, y: Any, generator: Any) -> float:
        return 0.0

    history = fedhaw.simulate(fedhaw.FedAvg(), client_update=own, workers=2, **settings)
    assert len(history.records) == 1
    with pytest.raises(WorkersFailed, match="choose engine"):
        fedhaw.simulate(fedhaw.FedAvg(), engine="processes", **settings)

"""A sweep on a real Dask cluster of two workers: one is killed, and one client goes away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.system.sweeps import ROUNDS, WHOLE, outcome, rounds, several_under_way, start, wait_for

pytest.importorskip("distributed", reason="needs the extra cluster")
pytestmark = pytest.mark.system

BOTH_THERE = """
import sys
from distributed import Client
with Client(scheduler_file=sys.argv[1]) as client:
    client.wait_for_workers(2, timeout=100)
"""


@dataclass(frozen=True)
class Cluster:
    address: str
    workers: list["subprocess.Popen[bytes]"]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers, each a process of its own on loopback."""
    folder = tmp_path_factory.mktemp("dask")
    where = folder / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet: Any = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [
        subprocess.Popen(
            [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
             "--scheduler-file", str(where)],
            **quiet,
        )
    ]  # fmt: skip
    try:
        wait_for(lambda: where.exists() and where.read_text().endswith("}"))
        processes += [
            subprocess.Popen(
                [*dask, "worker", "--scheduler-file", str(where), "--nthreads", "1", "--no-nanny",
                 "--no-dashboard", "--local-directory", str(folder / str(number))],
                **quiet,
            )
            for number in range(2)
        ]  # fmt: skip
        subprocess.run([sys.executable, "-c", BOTH_THERE, str(where)], check=True, timeout=120)
        yield Cluster(_address(where), processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _address(where: Path) -> str:
    import json

    address = json.loads(where.read_text())["address"]
    return str(address).replace("tcp://", "dask://")


def test_a_dead_workers_run_is_taken_over_by_another(
    tmp_path: Path, cluster: Cluster, one_at_a_time: dict[str, Any]
) -> None:
    sweep = start(tmp_path / "a", *WHOLE, "--jobs", "2", "--cluster", cluster.address)
    wait_for(lambda: several_under_way(tmp_path))
    cluster.workers[0].kill()
    _, said = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, said
    assert "Traceback" not in said
    assert outcome(tmp_path / "a") == one_at_a_time
    assert f"fedhaw, seed 1: round {ROUNDS} of {ROUNDS}" in said


def test_runs_stop_when_nobody_waits_for_them_and_go_on_later(
    tmp_path: Path, cluster: Cluster, one_at_a_time: dict[str, Any]
) -> None:
    sweep = start(tmp_path / "a", *WHOLE, "--cluster", cluster.address)
    wait_for(lambda: several_under_way(tmp_path))
    os.killpg(sweep.pid, signal.SIGINT)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, said
    assert "Interrupted. What has been done is in out" in said
    assert "Traceback" not in said

    def still() -> bool:
        before = rounds(tmp_path)
        time.sleep(2)
        return rounds(tmp_path) == before

    wait_for(still)
    assert min(rounds(tmp_path)) < ROUNDS, "the runs went on to their ends"
    again = start(tmp_path / "a", *WHOLE, "--cluster", cluster.address)
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert outcome(tmp_path / "a") == one_at_a_time

"""A sweep on a real Ray cluster, one of whose workers is killed."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.sweeps import WHOLE, outcome, several_under_way, start, wait_for

# Ray is large, and not one of the packages that the tests install.
missing = importlib.util.find_spec("ray") is None
pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(missing, reason="needs the extra ray"),
]

HEAD = """
import ray, sys
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()  # until the test is over; then Ray ends with this process
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-c", HEAD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as head:  # fmt: skip
        assert head.stdout is not None
        monkeypatch.setenv("RAY_ADDRESS", head.stdout.readline().strip())
        yield "ray"


def _workers() -> list[int]:
    """Processes in which a run is under way; Ray gives them the function's name."""
    return [
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if (place / "cmdline").exists() and b"ray::_work" in (place / "cmdline").read_bytes()
    ]


def test_a_dead_workers_run_is_taken_over_by_another(
    tmp_path: Path, cluster: str, one_at_a_time: dict[str, Any]
) -> None:
    sweep = start(tmp_path / "a", *WHOLE, "--jobs", "2", "--cluster", cluster)
    wait_for(lambda: several_under_way(tmp_path))
    os.kill(_workers()[0], signal.SIGKILL)
    _, said = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, said
    assert "Traceback" not in said
    assert outcome(tmp_path / "a") == one_at_a_time


def test_a_run_that_fails_says_why_in_one_sentence(tmp_path: Path, cluster: str) -> None:
    (tmp_path / "broken.py").write_text(
        "from fedhaw import FedAvg\n"
        "class Broken(FedAvg):\n"
        "    def aggregate(self, state, current):\n"
        "        raise ValueError('no luck')\n"
    )
    rule = ["--rules", f"{tmp_path / 'broken.py'}:Broken", "--cluster", cluster]
    sweep = start(tmp_path / "a", *rule)
    _, said = sweep.communicate(timeout=120)
    assert sweep.returncode == 2, said
    assert "no luck" in said
    assert "Traceback" not in said

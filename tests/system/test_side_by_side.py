"""Sweeps whose runs go on side by side: the same results, also when processes are killed."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.system.sweeps import (
    ROUNDS,
    WHOLE,
    group_is_alive,
    outcome,
    rounds,
    several_under_way,
    start,
    steps,
    wait_for,
    workers_of,
)

pytestmark = pytest.mark.system


def test_a_killed_worker_changes_nothing(tmp_path: Path, one_at_a_time: dict[str, Any]) -> None:
    sweep = start(tmp_path / "a", *WHOLE, "--jobs", "2", "--json")
    wait_for(lambda: several_under_way(tmp_path))
    os.kill(workers_of(sweep.pid)[0], signal.SIGKILL)
    out, said = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, said
    assert "was killed; the runs that were under way go on from their last checkpoints" in said
    assert "Traceback" not in said
    assert json.loads(out)["rules"]["fedhaw"]["accuracy"]["seeds"] == 2
    assert outcome(tmp_path / "a") == one_at_a_time


def test_a_sweep_of_one_run_at_a_time_that_was_killed_equals_one_that_was_not(
    tmp_path: Path, one_at_a_time: dict[str, Any]
) -> None:
    sweep = start(tmp_path / "a", *WHOLE, "--jobs", "1")
    wait_for(lambda: any(5 <= done < ROUNDS for done in rounds(tmp_path / "a/out/runs/fedhaw")))
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.communicate()
    done = tmp_path / "a/out/runs/fedavg/seed-0/history.jsonl"
    before = done.stat().st_mtime_ns, done.read_bytes()

    again = start(tmp_path / "a", *WHOLE, "--json")
    out, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert (done.stat().st_mtime_ns, done.read_bytes()) == before, "a finished run ran again"
    assert outcome(tmp_path / "a") == one_at_a_time
    assert len(json.loads(out)["rules"]["fedhaw"]["accuracy_per_round"]) == ROUNDS


def test_a_killed_sweep_leaves_no_process_and_goes_on(
    tmp_path: Path, one_at_a_time: dict[str, Any]
) -> None:
    sweep = start(tmp_path / "a", *WHOLE, "--jobs", "2")
    wait_for(lambda: several_under_way(tmp_path))
    sweep.kill()  # the parent alone
    sweep.communicate()
    wait_for(lambda: not group_is_alive(sweep.pid), 20)
    before = rounds(tmp_path)

    again = start(tmp_path / "a", *WHOLE, "--jobs", "2", "--tensorboard")
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert outcome(tmp_path / "a") == one_at_a_time
    assert max(before) > 4
    for run in ("fedavg/seed-0", "fedhaw/seed-1"):
        assert steps(tmp_path / "a" / "out" / "tensorboard" / run) == list(range(ROUNDS))


def test_ctrl_c_says_how_to_go_on_and_leaves_no_process(tmp_path: Path) -> None:
    sweep = start(tmp_path / "a", "--rounds", "100000", "--jobs", "2")
    wait_for(lambda: sum(done >= 3 for done in rounds(tmp_path)) == 2)
    os.killpg(sweep.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert "Traceback" not in said
    assert "Interrupted. What has been done is in out; to go on where it stopped" in said
    wait_for(lambda: not group_is_alive(sweep.pid), 20)


def test_ctrl_c_while_the_workers_start_shows_no_traceback(tmp_path: Path) -> None:
    sweep = start(tmp_path / "a", "--rounds", "100000", "--jobs", "2")
    wait_for(lambda: workers_of(sweep.pid))
    os.killpg(sweep.pid, signal.SIGINT)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert "Traceback" not in said
    wait_for(lambda: not group_is_alive(sweep.pid), 20)


def test_a_mistake_in_one_run_ends_the_sweep_with_its_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "from fedhaw import FedAvg\n"
        "class Failing(FedAvg):\n"
        "    def aggregate(self, state, current):\n"
        "        raise KeyError('lost')\n"
    )
    sweep = start(folder, "--rounds", "100000", "--jobs", "2", "--rules", "fedavg,mine.py:Failing")
    _, said = sweep.communicate(timeout=120)
    assert sweep.returncode == 2, said
    assert "Your own code failed (KeyError: 'lost', line 4 of mine.py); mend it." in said
    assert "Traceback" not in said
    wait_for(lambda: not group_is_alive(sweep.pid), 20)

"""Sweeps whose runs go on side by side: the same results, also when processes are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

SWEEP = ["compare", "--rules", "fedavg,fedhaw", "--seeds", "2", "--checkpoint-every", "4"]
SWEEP += ["--train-samples", "2500"]


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "fedhaw", *SWEEP, "--out", "out", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A suite that runs in the background has been told to ignore Ctrl-C, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(what: Any, seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} seconds in vain")


def rounds(folder: Path) -> list[int]:
    """How many rounds each history has."""
    return [p.read_bytes().count(b'"kind":"round"') for p in folder.rglob("history.jsonl")]


def several_under_way(folder: Path) -> bool:
    return sum(5 <= done < 30 for done in rounds(folder)) >= 2


def workers_of(parent: int) -> list[int]:
    """The worker processes of a sweep; joblib has one more child, which tidies up after it."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z" and b"popen_loky" in command:
            found.append(int(place.name))
    return found


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that runs left behind, besides times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("history.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            for key in ("seconds", "started", "crc32"):
                line.pop(key, None)
        last = sorted((path.parent / "checkpoints").iterdir())[-1]
        found[str(path.relative_to(folder))] = lines, last.read_bytes()
    return found


@pytest.fixture(scope="module")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("one")
    done = start(folder, "--rounds", "30", "--jobs", "1")
    _, said = done.communicate(timeout=300)
    assert done.returncode == 0, said
    return outcome(folder)


def test_a_killed_worker_changes_nothing(tmp_path: Path, one_at_a_time: dict[str, Any]) -> None:
    sweep = start(tmp_path / "a", "--rounds", "30", "--jobs", "2", "--json")
    wait_for(lambda: several_under_way(tmp_path))
    os.kill(workers_of(sweep.pid)[0], signal.SIGKILL)
    out, said = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, said
    assert "was killed; the runs that were under way go on from their last checkpoints" in said
    assert "Traceback" not in said
    assert json.loads(out)["rules"]["fedhaw"]["accuracy"]["seeds"] == 2
    assert outcome(tmp_path / "a") == one_at_a_time


def test_a_killed_sweep_leaves_no_process_and_goes_on(
    tmp_path: Path, one_at_a_time: dict[str, Any]
) -> None:
    sweep = start(tmp_path / "a", "--rounds", "30", "--jobs", "2")
    wait_for(lambda: several_under_way(tmp_path))
    sweep.kill()  # the parent alone
    sweep.communicate()
    wait_for(lambda: not group_is_alive(sweep.pid), 20)
    before = rounds(tmp_path)

    again = start(tmp_path / "a", "--rounds", "30", "--jobs", "2", "--tensorboard")
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert outcome(tmp_path / "a") == one_at_a_time
    assert max(before) > 4
    for run in ("fedavg/seed-0", "fedhaw/seed-1"):
        assert steps(tmp_path / "a" / "out" / "tensorboard" / run) == list(range(30))


def steps(folder: Path) -> list[int]:
    """The rounds in a folder of event files."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [event for file in folder.iterdir() for event in EventFileLoader(str(file)).Load()]
    return [event.step for event in events if event.summary.value]


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

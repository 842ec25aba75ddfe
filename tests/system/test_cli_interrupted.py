"""Whole programs that are killed, interrupted or piped into something that stops reading."""

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

SWEEP = ["compare", "--rules", "fedavg,fedhaw", "--rounds", "40", "--seeds", "2", "--out", "out"]


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fedhaw", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A suite that runs in the background has been told to ignore Ctrl-C, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_rounds(history: Path, rounds: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if history.exists() and history.read_bytes().count(b'"kind":"round"') >= rounds:
            return
        time.sleep(0.01)
    raise AssertionError(f"{history} did not reach {rounds} rounds in a minute")


def lines_without_times(history: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    for line in lines:
        for key in ("seconds", "started", "crc32"):
            line.pop(key, None)
    return lines


def test_a_sweep_killed_and_resumed_equals_one_that_was_not(tmp_path: Path) -> None:
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    sweep = start(tmp_path / "killed", *SWEEP, "--jobs", "1")
    runs = tmp_path / "killed" / "out" / "runs"
    wait_for_rounds(runs / "fedhaw" / "seed-0" / "history.jsonl", 15)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.communicate()
    done = runs / "fedavg" / "seed-0" / "history.jsonl"
    before = done.stat().st_mtime_ns, done.read_bytes()

    resumed = start(tmp_path / "killed", *SWEEP, "--json")
    whole = start(tmp_path / "whole", *SWEEP, "--json")
    outputs = [json.loads(process.communicate(timeout=120)[0]) for process in (resumed, whole)]

    assert (done.stat().st_mtime_ns, done.read_bytes()) == before, "a finished cell ran again"
    for rule in ("fedavg", "fedhaw"):
        assert [out["rules"][rule]["accuracy_per_round"] for out in outputs] == [
            outputs[0]["rules"][rule]["accuracy_per_round"]
        ] * 2
        for seed in ("seed-0", "seed-1"):
            place = Path("out", "runs", rule, seed, "history.jsonl")
            ours, theirs = (lines_without_times(tmp_path / n / place) for n in ("killed", "whole"))
            assert ours == theirs


def test_ctrl_c_says_how_to_go_on_and_leaves_no_process(tmp_path: Path) -> None:
    process = start(
        tmp_path, "run", "--rule", "fedavg", "--rounds", "100000", "--engine", "processes",
        "--workers", "2", "--out", "out",
    )  # fmt: skip
    wait_for_rounds(tmp_path / "out" / "history.jsonl", 3)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "Interrupted. What has been done is in out; to go on where it stopped" in said
    assert "fedhaw run --rule fedavg --rounds 100000" in said
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and group_is_alive(process.pid):
        time.sleep(0.1)
    assert not group_is_alive(process.pid), "workers were left behind"


def test_ctrl_c_while_the_workers_start_shows_no_traceback(tmp_path: Path) -> None:
    process = start(
        tmp_path, "run", "--rule", "fedavg", "--rounds", "100000", "--engine", "processes",
        "--workers", "2", "--out", "out",
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("this system does not list a process's children in /proc")
    deadline = time.monotonic() + 60
    while not children.read_text().split() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.3)  # the workers are importing torch, which takes seconds
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    with start(tmp_path, "rules", "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=30) == 0


def test_completion_offers_commands_and_rules(tmp_path: Path) -> None:
    def offered(words: str) -> list[str]:
        environment = {
            **os.environ,
            "_FEDHAW_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - (not words.endswith(" "))),
        }
        done = subprocess.run(
            [sys.executable, "-m", "fedhaw"], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout.split()

    assert offered("fedhaw comp") == ["compare"]
    assert offered("fedhaw compare --rules fedavg,fedh") == [
        "fedavg,fedhyper", "fedavg,fedhaw", "fedavg,fedhaw-auto",
    ]  # fmt: skip


def test_help_needs_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from fedhaw.cli import main\n"
        "try: main(['compare', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'matplotlib', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

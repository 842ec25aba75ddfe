"""Whole programs that are killed, interrupted or piped into something that stops reading."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.system.sweeps import group_is_alive, rounds, wait_for

pytestmark = pytest.mark.system


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


def test_ctrl_c_says_how_to_go_on_and_leaves_no_process(tmp_path: Path) -> None:
    process = start(
        tmp_path, "run", "--rule", "fedavg", "--rounds", "100000", "--engine", "processes",
        "--workers", "2", "--out", "out",
    )  # fmt: skip
    wait_for(lambda: max(rounds(tmp_path), default=0) >= 3)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "Interrupted. What has been done is in out; to go on where it stopped" in said
    assert "fedhaw run --rule fedavg --rounds 100000" in said
    wait_for(lambda: not group_is_alive(process.pid), 20)


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

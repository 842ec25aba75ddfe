"""Sweeps as whole programs, for tests that kill some of their processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SWEEP = ["compare", "--rules", "fedavg,fedhaw", "--seeds", "2", "--checkpoint-every", "4"]
SWEEP += ["--train-samples", "2500"]
ROUNDS = 30
"""So many that runs side by side are still under way when a test looks."""

WHOLE = ["--rounds", str(ROUNDS)]


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
    return sum(5 <= done < ROUNDS for done in rounds(folder)) >= 2


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


def steps(folder: Path) -> list[int]:
    """The rounds in a folder of event files."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [event for file in folder.iterdir() for event in EventFileLoader(str(file)).Load()]
    return [event.step for event in events if event.summary.value]

"""Runs that the tests kill: a program of its own, so that SIGKILL is the real thing.

killed_runs.py once FOLDER [CLIENT_UPDATE]     one run
killed_runs.py forks FOLDER [CLIENT_UPDATE]    many runs, each killed at random moments until it
                                               ends by itself
killed_runs.py writes FOLDER [CLIENT_UPDATE]   runs killed before their first, second, ... write to
                                               the disk, then taken up
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedhaw import FedHAW, History, simulate
from fedhaw.checkpoints import read
from fedhaw.data import from_arrays
from fedhaw.history.file import HistoryFile
from fedhaw.simulation.client_memory import ClientMemories

RUNS, ROUNDS = 4, 40
CLIENT_UPDATE = sys.argv[3] if len(sys.argv) > 3 else "sgd"


def one_run(folder: Path, rounds: int = ROUNDS) -> None:
    numbers = np.random.default_rng(5)
    labels = np.arange(180) % 3
    points = (numbers.normal(size=(3, 6))[labels] + numbers.normal(size=(180, 6))).astype("float32")
    simulate(
        FedHAW(0.1, 1e-2, 1e-1),
        from_arrays(points[60:], labels[60:], points[:60], labels[:60]),
        model="mlp-5", clients=4, cohort=3, split="iid", eta=0.1, batch=8, uplink=0.8,
        stand_in="last", rounds=rounds, engine="sequential", out=folder, checkpoint_every=3,
        client_update=CLIENT_UPDATE,
    )  # fmt: skip


def child(folder: Path, rounds: int = ROUNDS, kill_at: int | None = None) -> int:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            if kill_at is not None:
                kill_at_write(kill_at)
            one_run(folder, rounds)
            status = 0
        finally:
            os._exit(status)
    return pid


def outcome(folder: Path) -> str:
    records = [replace(record, seconds={}) for record in History.read(folder).records]
    parts = read(sorted((folder / "checkpoints").iterdir())[-1])
    memories = parts.pop("clients", None)
    content = [(name, array.tobytes()) for p in parts.values() for name, array in p.arrays.items()]
    if memories is not None:  # where they lie in their file is no part of the outcome
        owners, checksums = memories.arrays["clients"], memories.arrays["checksums"]
        content.append(("memories", repr(sorted(zip(owners, checksums, strict=True))).encode()))
    return repr(records) + hashlib.sha256(repr(content).encode()).hexdigest()


def kill_at_write(number: int) -> None:
    """The end of this process just before its next write of this number."""
    left = [number]

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    for place, name in (
        (os, "fsync"), (os, "pwrite"), (os, "posix_fallocate"), (os, "ftruncate"),
        (Path, "replace"), (Path, "unlink"), (HistoryFile, "append"), (ClientMemories, "settle"),
    ):  # fmt: skip
        setattr(place, name, deadly(getattr(place, name)))


def writes(folder: Path) -> None:
    rounds = 8
    assert os.waitpid(child(folder / "whole", rounds), 0)[1] == 0
    outcomes, kills = {outcome(folder / "whole")}, 0
    while True:
        target = folder / str(kills)
        if os.waitpid(child(target, rounds, kill_at=kills), 0)[1] == 0:
            break
        kills += 1
        assert os.waitpid(child(target, rounds), 0)[1] == 0
        outcomes.add(outcome(target))
    print(json.dumps({"kills": kills, "different outcomes": len(outcomes)}))


def forks(folder: Path) -> None:
    begin = time.monotonic()
    assert os.waitpid(child(folder / "whole"), 0)[1] == 0
    duration = time.monotonic() - begin
    outcomes, kills = {outcome(folder / "whole")}, 0
    moments = random.Random(time.time_ns())
    for run in range(RUNS):
        target = folder / str(run)
        while True:
            pid = child(target)
            time.sleep(moments.uniform(0, 0.4 * duration))
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            if status == 0:
                break
            assert os.WIFSIGNALED(status), f"the run failed with status {status}"
            kills += 1
        leftovers = [file.name for file in target.rglob("*.tmp")]
        assert not leftovers, leftovers
        outcomes.add(outcome(target))
    print(json.dumps({"kills": kills, "different outcomes": len(outcomes)}))


if __name__ == "__main__":
    # A forked child must not wait for threads that only its parent has.
    torch.set_num_threads(1)
    {"once": one_run, "forks": forks, "writes": writes}[sys.argv[1]](Path(sys.argv[2]))

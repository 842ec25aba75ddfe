"""Runs that the tests kill: a program of its own, so that SIGKILL is the real thing.

killed_runs.py once FOLDER     one run
killed_runs.py forks FOLDER    many runs, each killed at random moments until it ends by itself
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedhaw import FedHAW, History, simulate
from fedhaw.data import from_arrays

RUNS, ROUNDS = 4, 40


def one_run(folder: Path) -> None:
    numbers = np.random.default_rng(5)
    labels = np.arange(180) % 3
    points = (numbers.normal(size=(3, 6))[labels] + numbers.normal(size=(180, 6))).astype("float32")
    simulate(
        FedHAW(0.1, 1e-2, 1e-1),
        from_arrays(points[60:], labels[60:], points[:60], labels[:60]),
        model="mlp-5", clients=4, cohort=3, split="iid", eta=0.1, batch=8, uplink=0.8,
        stand_in="last", rounds=ROUNDS, engine="sequential", out=folder, checkpoint_every=3,
    )  # fmt: skip


def child(folder: Path) -> int:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            one_run(folder)
            status = 0
        finally:
            os._exit(status)
    return pid


def outcome(folder: Path) -> str:
    records = [replace(record, seconds={}) for record in History.read(folder).records]
    last = sorted((folder / "checkpoints").iterdir())[-1].read_bytes()
    return repr(records) + hashlib.sha256(last).hexdigest()


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
    {"once": one_run, "forks": forks}[sys.argv[1]](Path(sys.argv[2]))

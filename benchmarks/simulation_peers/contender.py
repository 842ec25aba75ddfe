"""One contender in a process of its own, doing a round whenever the referee asks for one."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulation_peers.workload import Rounds, workload

NAMES = {
    "sequential": "fedhaw, sequential",
    "processes": "fedhaw, processes",
    "stacked": "fedhaw, stacked",
    "auto": "fedhaw, auto",
    "auto-bfloat16": "fedhaw, auto, bfloat16",
    "sequential-any": "fedhaw, sequential, any module",
    "processes-any": "fedhaw, processes, any module",
    "stacked-any": "fedhaw, stacked, any module",
    "sequential-scaffold": "fedhaw, sequential, SCAFFOLD",
    "processes-scaffold": "fedhaw, processes, SCAFFOLD",
    "stacked-scaffold": "fedhaw, stacked, SCAFFOLD",
    "sequential-feddyn": "fedhaw, sequential, FedDyn",
    "sequential-fednova": "fedhaw, sequential, FedNova",
    "plain": "a plain loop on each core",
    "authors": "authors' loop (DataLoader)",
    "flower": "Flower simulation (Ray)",
    "pfl": "pfl",
    "pfl-scaffold": "pfl, SCAFFOLD",
}
"""Short name to the name in the table."""

NEEDS = {"flower": "ray", "pfl": "pfl", "pfl-scaffold": "pfl"}


def missing(name: str) -> str | None:
    """The package that a contender needs and that is not installed."""
    package = NEEDS.get(name)
    return package if package and importlib.util.find_spec(package) is None else None


def make_rounds(name: str, work_name: str, data: str) -> Rounds:
    from simulation_peers import apple_pfl, authors, flower, ours, plain

    work = workload(work_name, data)
    match name:
        case "authors":
            return authors.rounds(work)
        case "plain":
            return plain.rounds(work, work_name, data)
        case "flower":
            return flower.rounds(work, work_name, data)
        case "pfl" | "pfl-scaffold":
            return apple_pfl.rounds(work, scaffold=name == "pfl-scaffold")
    engine, _, kind = name.partition("-")
    match kind:
        case "" | "any":
            return ours.rounds(work, engine, opaque=kind == "any")
        case "bfloat16":
            return ours.rounds(work, engine, precision=kind)
    return ours.rounds(work, engine, client_update=kind)


def serve(name: str, work_name: str, data: str) -> None:
    """The child's side: a line in, a round, its seconds out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    rounds = make_rounds(name, work_name, data)
    with suppress(BrokenPipeError):
        for _ in sys.stdin:
            begin = time.perf_counter()
            next(rounds)
            print(json.dumps(time.perf_counter() - begin), file=answers, flush=True)
    os._exit(0)  # without waiting for threads that serve nobody any more


@dataclass
class Contender:
    """The referee's side.

    Attributes:
        name: who it is, of `NAMES`.
        work_name: what it does.
        data: file of the samples.
        checkout: folder of the fedhaw that competes; None for this one.
        first: seconds until its first round was over.
        seconds: of each timed round.
        processor: seconds of all cores together, of each timed round.
        peak: most bytes in memory in the watched round.
        heap: those of them that no file stands behind.
    """

    name: str
    work_name: str
    data: str
    checkout: Path | None = None
    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    peak: int = 0
    heap: int = 0

    def __enter__(self) -> "Contender":
        """Start it and wait for its first round."""
        here = (self.checkout or Path(__file__).resolve().parents[2]) / "benchmarks"
        paths = [str(here), *([str(here.parent / "src")] if self.checkout else []), *sys.path]
        begin = time.perf_counter()
        self._child = subprocess.Popen(
            [
                sys.executable,
                here / "simulation.py",
                "--serve",
                self.name,
                self.work_name,
                self.data,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.name == "flower" else None,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        self._ask()
        self.first = time.perf_counter() - begin
        return self

    def __exit__(self, *_: Any) -> None:
        pids = _tree(self._child.pid)
        self._child.communicate()
        for pid in pids:  # Ray leaves some behind
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue

    def warm_up(self) -> None:
        """One round that is not timed."""
        self._ask()

    def round(self, patience: float = 0.0) -> None:
        """One timed round, begun when the machine is idle or patience has run out."""
        _wait_for_idle(patience)
        before = _processor_seconds(self._child.pid)
        self.seconds.append(self._ask())
        self.processor.append(_processor_seconds(self._child.pid) - before)

    def watched_round(self) -> None:
        """One round that is not timed, during which memory is watched."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                self._look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        self._ask()
        over.set()
        watcher.join()
        self._look()

    def _look(self) -> None:
        self.peak = max(self.peak, _memory(self._child.pid, "Pss:"))
        heap = _memory(self._child.pid, "Pss_Anon:") + _memory(self._child.pid, "Pss_Shmem:")
        self.heap = max(self.heap, heap)

    def _ask(self) -> float:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(file=self._child.stdin, flush=True)
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} ended with code {self._child.wait()}")
        return float(json.loads(answer))


def _wait_for_idle(patience: float) -> None:
    """Wait until hardly anything else has run for a moment; a shared machine is seldom quiet."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        idle, total = _idle_time()
        time.sleep(0.3)
        later, all_of_it = _idle_time()
        if later - idle > 0.9 * (all_of_it - total):
            return


def _idle_time() -> tuple[int, int]:
    """Ticks that all cores together have idled, and ticks in all."""
    with Path("/proc/stat").open() as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def _processor_seconds(pid: int) -> float:
    """Seconds that a process and its descendants have run so far, on all cores together."""
    spent = 0
    for each in _tree(pid):
        for task in Path(f"/proc/{each}/task").glob("*/schedstat"):
            try:
                spent += int(task.read_text().split()[0])
            except OSError:
                continue
    return spent / 1e9


def _memory(pid: int, kind: str) -> int:
    """Bytes in memory of a process and its descendants, shared pages counted once among them.

    Args:
        pid: of the process.
        kind: "Pss:" for everything; "Pss_Anon:" and "Pss_Shmem:" are what no file stands behind.
    """
    total = 0
    for each in _tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))
    return total

"""How long a sweep of short runs takes, with one run at a time and with several.

    python benchmarks/sweep.py                       # 8 runs of 40 rounds, three times each
    python benchmarks/sweep.py --repeats 5 --jobs 1 2 4 --save

Rules fedavg, fedhyper, fedlws and fedhaw on mnist-5k, two seeds each. Every sweep runs in a fresh
process and is timed from the prepared plan to its last run's end, so that the start of its worker
processes counts. Sweeps with different numbers of jobs take turns: whatever else the machine does
falls on all of them alike. Processor time is user's and system's, of all processes together.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from record import Record

RULES = ("fedavg", "fedhyper", "fedlws", "fedhaw")
SEEDS = (0, 1)


@dataclass
class Timings:
    """The seconds of every sweep with one number of jobs."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def sweep(jobs: int, rounds: int, out: Path) -> None:
    """One sweep, timed; its seconds go to standard output."""
    from fedhaw.experiments import Recipe, RuleChoice, Sharing
    from fedhaw.experiments.compare import ComparePlan
    from fedhaw.experiments.running import prepare
    from fedhaw.experiments.sweep import run_sweep

    recipe = Recipe.of({"rounds": rounds})
    prepare(recipe)  # imports torch and loads the data, which every sweep has to do
    plan = ComparePlan(recipe, tuple(map(RuleChoice, RULES)), SEEDS, out)
    begin = time.perf_counter()
    run_sweep(plan.jobs, sharing=Sharing(jobs=jobs))
    print(json.dumps(time.perf_counter() - begin))


def timed(jobs: int, rounds: int) -> tuple[float, float]:
    """Wall and processor seconds of a sweep in a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", folder, "--jobs", str(jobs)]
        command += ["--rounds", str(rounds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(json.loads(done.stdout)), used


def compete(jobs: list[int], rounds: int, repeats: int) -> dict[int, Timings]:
    """Sweeps with different numbers of jobs, in turn."""
    found = {number: Timings() for number in jobs}
    for repeat in range(repeats):
        for number, timings in found.items():
            print(f"repeat {repeat + 1} of {repeats}, --jobs {number}", file=sys.stderr, flush=True)
            wall, processor = timed(number, rounds)
            timings.wall.append(wall)
            timings.processor.append(processor)
    return found


def report(record: Record, found: dict[int, Timings], rounds: int, repeats: int) -> None:
    """The result as a table."""
    first = next(iter(found.values()))
    title = f"{len(RULES) * len(SEEDS)} runs of {rounds} rounds on mnist-5k, {repeats} sweeps each"
    columns = ("--jobs", "best s", "median s", "of the first", "processor s")
    rows = []
    for jobs, timings in found.items():
        median = statistics.median(timings.wall)
        share = median / statistics.median(first.wall)
        processor = statistics.median(timings.processor)
        cells = (min(timings.wall), median, processor)
        best, usual, spent = (f"{seconds:.1f}" for seconds in cells)
        rows.append((jobs, best, usual, f"{share:.0%}", spent))
    record.table(title, columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/sweep.txt")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        sweep(given.jobs[0], given.rounds, given.one)
        return
    with Record("sweep", given.save) as record:
        found = compete(given.jobs, given.rounds, given.repeats)
        report(record, found, given.rounds, given.repeats)


if __name__ == "__main__":
    main()

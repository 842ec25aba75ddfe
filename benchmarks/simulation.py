"""How fast whole federations are simulated, beside what else one could use.

    python benchmarks/simulation.py                  # all workloads, about ten minutes
    python benchmarks/simulation.py --only A --rounds 15

A  the letter's MNIST federation: 10 clients, split D_alpha 0.1, MLP 784-128-128-10, batch 64, SGD,
   one epoch a round, everyone takes part.
B  1,000 clients, 10 a round, batch 10, logistic regression on MNIST, 100 rounds.
C  1,000 clients of 50 CIFAR-10 images, 50 a round, batch 10, a small CNN.
growth  10 to 10,000 clients of 6 samples, 10 a round: time and memory.
memories  the same clients with SCAFFOLD, each of which remembers 118,282 numbers: 4.7 GB in a file.

Every contender runs in a process of its own and does one round when asked; contenders take turns,
so that whatever else the machine does falls on all of them alike. A turn is a round that is not
timed, because whoever waited for the others finds the caches full of theirs, and a few that are.
All do federated averaging; none evaluates. Memory is watched in a round that is not timed either.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import torch
from record import Record
from simulation_peers.contender import NAMES, Contender, missing, serve
from simulation_peers.workload import workload

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

IN_A_ROW = 5
"""How many rounds a contender is timed in a turn."""

patience = 0.0


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def compete(
    work: str, data: str, names: Sequence[str], rounds: int, watch: bool = True
) -> list[Contender]:
    """Let contenders take turns at a workload."""
    for name in names:
        if package := missing(name):
            progress(f"{NAMES[name]} is left out: the package {package} is not installed.")
    present = [name for name in names if not missing(name)]
    with ExitStack() as stack:
        contenders = []
        for name in present:
            progress(f"{work}: starting {NAMES[name]}")
            contenders.append(stack.enter_context(Contender(name, work, data)))
        for begin in range(0, rounds, IN_A_ROW):
            progress(f"{work}: {begin} of {rounds} rounds done")
            for contender in contenders:
                contender.warm_up()
                for _ in range(begin, min(begin + IN_A_ROW, rounds)):
                    contender.round(patience)
        if watch:
            for contender in contenders:
                contender.watched_round()
    return contenders


def median(contender: Contender) -> float:
    return statistics.median(contender.seconds)


def workload_a(record: Record, data: str, rounds: int) -> None:
    names = ["sequential", "processes", "stacked", "auto", "sequential-any", "processes-any"]
    names += ["stacked-any", "sequential-scaffold", "processes-scaffold", "stacked-scaffold"]
    names += ["plain", "authors", "flower", "pfl"]
    contenders = compete("A", data, names, rounds)
    floor = sgemm_floor(data)
    medians = {contender.name: median(contender) for contender in contenders}
    peers = [peer for peer in ("authors", "flower", "pfl") if peer in medians]
    record.table(
        f"Workload A: {rounds} rounds, medians; sgemm on all cores needs {floor:.3f} s a round",
        ("", "s/round", "lowest", *(f"x {peer}" for peer in peers), "first s", "peak MB", "sgemm"),
        (
            (
                NAMES[contender.name], f"{seconds:.3f}", f"{min(contender.seconds):.3f}",
                *(f"{medians[peer] / seconds:.2f}" for peer in peers),
                f"{contender.first:.1f}", f"{contender.peak / 2**20:.0f}", f"{floor / seconds:.0%}",
            )
            for contender in contenders
            for seconds in [medians[contender.name]]
        ),
    )  # fmt: skip


def sgemm_floor(data: str) -> float:
    """Seconds that the round's matrix products alone need at the machine's best rate."""
    work = workload("A", data)
    a = torch.randn(2048, 2048)
    out = torch.empty(2048, 2048)
    best = float("inf")
    for _ in range(12):
        begin = time.perf_counter()
        torch.mm(a, a, out=out)
        best = min(best, time.perf_counter() - begin)
    rate = 2 * 2048**3 / best
    sizes = [784, 128, 128, 10]
    products = [a * b for a, b in pairwise(sizes)]
    # Forward, backward to the weights, and backward to the inputs except the samples themselves.
    operations = 2 * (3 * sum(products) - products[0])
    return operations * sum(map(len, work.parts)) / rate


def workload_b(record: Record, data: str, rounds: int) -> None:
    contenders = compete("B", data, ["auto", "sequential", "pfl", "flower"], rounds, watch=False)
    ours = sum(contenders[0].seconds)
    rows = (
        (NAMES[own.name], f"{sum(own.seconds):.2f}", f"{sum(own.seconds) / ours:.1f}",
         f"{own.first:.1f}")
        for own in contenders
    )  # fmt: skip
    record.table(
        f"Workload B: seconds for {rounds} rounds in all",
        ("", "s", "x the first", "first round after s"),
        rows,
    )


def workload_c(record: Record, data: str, rounds: int) -> None:
    names = ["auto", "auto-bfloat16", "sequential", "plain", "pfl"]
    contenders, work = compete("C", data, names, rounds, watch=False), workload("C", data)
    medians = {own.name: median(own) for own in contenders}
    peers = [peer for peer in ("pfl",) if peer in medians]
    record.table(
        f"Workload C: client visits a second, {rounds} rounds of {work.cohort} clients",
        ("", "visits/s", *(f"x {peer}" for peer in peers)),
        (
            (
                NAMES[name], f"{work.cohort / seconds:.1f}",
                *(f"{medians[peer] / seconds:.2f}" for peer in peers),
            )
            for name, seconds in medians.items()
        ),
    )  # fmt: skip


def growth(record: Record, data: str, rounds: int) -> None:
    def rows() -> Iterator[tuple[str, ...]]:
        for name in ("sequential", "processes"):
            least = None
            for clients in (10, 100, 1_000, 10_000):
                (contender,) = compete(f"growth-{clients}", data, [name], rounds)
                copies = 1 + (name == "processes")
                own = contender.peak - _bytes_of_data(data, clients, copies)
                least = own if least is None else least
                yield (
                    f"{NAMES[name]}, {clients:,} clients", f"{median(contender) * 1e3:.2f}",
                    f"{own / 2**20:.1f}", f"{(own - least) / 2**20:+.1f}",
                )  # fmt: skip

    record.table(
        "Growth: 10 of K clients a round, 6 samples each; memory beyond the samples themselves",
        ("", "ms/round", "MB", "against 10 clients"),
        rows(),
    )


def memories(record: Record, data: str, rounds: int) -> None:
    def rows() -> Iterator[tuple[str, ...]]:
        least = None
        for clients in (10, 1_000, 10_000):
            (contender,) = compete(f"growth-{clients}", data, ["sequential-scaffold"], rounds)
            own = contender.heap - _bytes_of_data(data, clients, copies=1)
            least = own if least is None else least
            yield (
                f"{clients:,} clients", f"{clients * 118_282 * 4 / 1e9:.2f}",
                f"{median(contender) * 1e3:.2f}", f"{own / 2**20:.1f}",
                f"{(own - least) / 2**20:+.1f}",
            )  # fmt: skip

    record.table(
        "Memories: SCAFFOLD, 10 of K clients a round, all of which remember 118,282 numbers",
        ("", "GB in the file", "ms/round", "MB of heap", "against 10 clients"),
        rows(),
    )


def _bytes_of_data(data: str, clients: int, copies: int) -> int:
    sample = workload("A", data).x[0].numel() * 4 + 8
    return clients * 6 * sample * copies


def main() -> None:
    mnist, cifar = SHARED / "mnist.npz", SHARED / "cifar10_12k.npz"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=str(mnist) if mnist.exists() else "")
    parser.add_argument("--cifar", default=str(cifar) if cifar.exists() else "")
    parser.add_argument("--only", nargs="*", default=["A", "B", "C", "growth", "memories"])
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of workload A")
    parser.add_argument("--save", action="store_true", help="write results/simulation.txt too")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds to wait for an idle machine each round"
    )
    options = parser.parse_args()
    global patience
    patience = options.patience
    if options.serve:
        serve(*options.serve)
    with Record("simulation", options.save) as record:
        record.say(f"data: {Path(options.data).name or 'mnist-5k'}")
        if "A" in options.only:
            workload_a(record, options.data, options.rounds)
        if "B" in options.only:
            workload_b(record, options.data, 100)
        if "C" in options.only and options.cifar:
            workload_c(record, options.cifar, 10)
        elif "C" in options.only:
            record.say("Workload C is left out: it needs CIFAR-10 as --cifar FILE.npz.")
        if "growth" in options.only:
            growth(record, options.data, 5)
        if "memories" in options.only:
            memories(record, options.data, 5)


if __name__ == "__main__":
    main()

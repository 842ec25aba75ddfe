"""How fast whole federations are simulated, beside what else one could use.

    python benchmarks/simulation.py                  # all workloads, about ten minutes
    python benchmarks/simulation.py --only A --rounds 9

A  the letter's MNIST federation: 10 clients, split D_alpha 0.1, MLP 784-128-128-10, batch 64, SGD,
   one epoch a round, everyone takes part.
B  1,000 clients, 10 a round, batch 10, logistic regression on MNIST, 100 rounds.
C  1,000 clients of 50 CIFAR-10 images, 50 a round, batch 10, a small CNN.
growth  10 to 10,000 clients of 6 samples, 10 a round: time and memory.
memories  the same clients with SCAFFOLD, each of which remembers 118,282 numbers: 4.7 GB in a file.

Every contender runs in a process of its own and does one round when asked; contenders take turns,
so that whatever else the machine does falls on all of them alike. All do federated averaging; none
evaluates. Memory is watched in a round that is not timed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import torch
from simulation_peers.contender import NAMES, Contender, missing, serve
from simulation_peers.workload import workload

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
RESULTS = Path(__file__).with_name("results") / "simulation.txt"

lines: list[str] = []
patience = 0.0


def say(line: str = "") -> None:
    print(line, flush=True)
    lines.append(line)


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def compete(
    work: str, data: str, names: Sequence[str], rounds: int, watch: bool = True
) -> list[Contender]:
    """Let contenders take turns at a workload."""
    for name in names:
        if package := missing(name):
            say(f"{NAMES[name]} is left out: the package {package} is not installed.")
    present = [name for name in names if not missing(name)]
    with ExitStack() as stack:
        contenders = []
        for name in present:
            progress(f"{work}: starting {NAMES[name]}")
            contenders.append(stack.enter_context(Contender(name, work, data)))
        for turn in range(rounds):
            progress(f"{work}: round {turn + 1} of {rounds}")
            for contender in contenders:
                contender.round(patience)
        if watch:
            for contender in contenders:
                contender.watched_round()
    return contenders


def median(contender: Contender) -> float:
    return statistics.median(contender.seconds)


def workload_a(data: str, rounds: int) -> None:
    names = ["sequential", "processes", "stacked", "auto", "sequential-any", "processes-any"]
    names += ["stacked-any", "sequential-scaffold", "processes-scaffold", "stacked-scaffold"]
    names += ["authors", "flower", "pfl"]
    contenders = compete("A", data, names, rounds)
    floor = sgemm_floor(data)
    medians = {contender.name: median(contender) for contender in contenders}
    peers = [peer for peer in ("authors", "flower", "pfl") if peer in medians]
    say(f"Workload A: {rounds} rounds, medians; sgemm on all cores needs {floor:.3f} s a round")
    titles = "".join(f"{'x ' + peer:>10}" for peer in peers)
    say(f"{'':32}{'s/round':>9}{'lowest':>9}{titles}{'first':>9}{'peak':>9}{'sgemm':>7}")
    for contender in contenders:
        seconds = medians[contender.name]
        ratios = "".join(f"{medians[peer] / seconds:>10.2f}" for peer in peers)
        say(
            f"{NAMES[contender.name]:32}{seconds:>9.3f}{min(contender.seconds):>9.3f}{ratios}"
            f"{contender.first:>7.1f} s{contender.peak / 2**20:>6.0f} MB{floor / seconds:>7.0%}"
        )
    say()


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


def workload_b(data: str, rounds: int) -> None:
    contenders = compete("B", data, ["auto", "sequential", "pfl", "flower"], rounds, watch=False)
    say(f"Workload B: seconds for {rounds} rounds in all")
    ours = sum(contenders[0].seconds)
    for contender in contenders:
        seconds = sum(contender.seconds)
        say(
            f"{NAMES[contender.name]:32}{seconds:>9.2f} s{seconds / ours:>8.1f} x the first, "
            f"first round after {contender.first:.1f} s"
        )
    say()


def workload_c(data: str, rounds: int) -> None:
    contenders = compete("C", data, ["auto", "sequential", "pfl"], rounds, watch=False)
    cohort = workload("C", data).cohort
    say(f"Workload C: client visits a second, {rounds} rounds of {cohort} clients")
    ours = median(contenders[0])
    for contender in contenders:
        seconds = median(contender)
        say(
            f"{NAMES[contender.name]:32}{cohort / seconds:>9.1f} visits/s"
            f"{seconds / ours:>8.2f} x the first's time"
        )
    say()


def growth(data: str, rounds: int) -> None:
    say("Growth: 10 of K clients a round, 6 samples each; memory beyond the samples themselves")
    for name in ("sequential", "processes"):
        least = None
        for clients in (10, 100, 1_000, 10_000):
            (contender,) = compete(f"growth-{clients}", data, [name], rounds)
            own = contender.peak - _bytes_of_data(data, clients, copies=1 + (name == "processes"))
            least = own if least is None else least
            say(
                f"{NAMES[name]:24}{clients:>8} clients{median(contender) * 1e3:>9.2f} ms/round"
                f"{own / 2**20:>8.1f} MB, {(own - least) / 2**20:+.1f} against 10 clients"
            )
    say()


def memories(data: str, rounds: int) -> None:
    say("Memories: SCAFFOLD, 10 of K clients a round, all of which remember 118,282 numbers")
    least = None
    for clients in (10, 1_000, 10_000):
        (contender,) = compete(f"growth-{clients}", data, ["sequential-scaffold"], rounds)
        own = contender.heap - _bytes_of_data(data, clients, copies=1)
        least = own if least is None else least
        say(
            f"{clients:>8} clients{clients * 118_282 * 4 / 1e9:>8.2f} GB in the file"
            f"{median(contender) * 1e3:>9.2f} ms/round{own / 2**20:>8.1f} MB of heap, "
            f"{(own - least) / 2**20:+.1f} against 10 clients"
        )
    say()


def _bytes_of_data(data: str, clients: int, copies: int) -> int:
    sample = workload("A", data).x[0].numel() * 4 + 8
    return clients * 6 * sample * copies


def main() -> None:
    mnist, cifar = SHARED / "mnist.npz", SHARED / "cifar10_12k.npz"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=str(mnist) if mnist.exists() else "")
    parser.add_argument("--cifar", default=str(cifar) if cifar.exists() else "")
    parser.add_argument("--only", nargs="*", default=["A", "B", "C", "growth", "memories"])
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds of workload A")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} too")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds to wait for an idle machine each round"
    )
    options = parser.parse_args()
    global patience
    patience = options.patience
    if options.serve:
        serve(*options.serve)
    say(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, data: "
        f"{Path(options.data).name or 'mnist-5k'}"
    )
    say()
    if "A" in options.only:
        workload_a(options.data, options.rounds)
    if "B" in options.only:
        workload_b(options.data, 100)
    if "C" in options.only:
        if options.cifar:
            workload_c(options.cifar, 3)
        else:
            say("Workload C is left out: it needs CIFAR-10 as --cifar FILE.npz.")
    if "growth" in options.only:
        growth(options.data, 5)
    if "memories" in options.only:
        memories(options.data, 5)
    if options.save:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()

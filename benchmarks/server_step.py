"""What one server step costs: our rules, a plain loop, Flower's FedAvg, and reading memory.

    make bench            all sizes, a few minutes
    python benchmarks/server_step.py --quick
    python benchmarks/server_step.py --busy     ResNet-18's size, on a machine that is not idle

Contenders take turns in one process, so that what else the machine does hits all alike; the median
of the turns counts. NumPy's BLAS and torch each keep threads that spin for a while after a call and
would slow the other's next one, so each backend has a process of its own. Times are of whole calls:
validation, guards and result included. On a busy machine threads wait for each other and times mean
nothing; `--busy` takes the least processor time on one core instead.
"""

import argparse
import multiprocessing
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import fedhaw
from fedhaw.models import Layout, resnet18
from fedhaw.rules import Round, Rule, memory

MNIST_MLP, DOGS_HEAD, RESNET18 = 118_282, 293_752, 11_173_962
SIZES = [(10, MNIST_MLP), (10, DOGS_HEAD), (10, RESNET18), (100, MNIST_MLP), (1000, MNIST_MLP)]
RULES: dict[str, Rule[Any]] = {
    "FedAvg": fedhaw.FedAvg(),
    "FedHyperG": fedhaw.FedHyperG(),
    "FedHAW": fedhaw.FedHAW(eta=0.1, eta_gamma=1e-9, eta_lambda=1e-6),
    "FedHAWAuto": fedhaw.FedHAWAuto(),
    "FedAdp": fedhaw.FedAdp(),
    "FedLWS": fedhaw.FedLWS(),
    "FedLAW, a proxy step": fedhaw.FedLAW(lambda model: (0.0, model), epochs=1, lr=1e-9),
}
MOVE = 0.1  # length of a client's update, as a share of the model's

BUSY = "FEDHAW_BENCH_BUSY"

PAUSE = 0.15  # seconds between large steps: BLAS threads spin for 0.1 s after a call

Step = Callable[[], Any]


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns, no K = 1000")
    parser.add_argument("--busy", action="store_true", help="processor time on one core")
    args = parser.parse_args()
    quick = args.quick
    if args.busy:
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", BUSY: "1"}
        print("least processor time on one core")
        table(10, RESNET18, 8)
        return
    sizes = [size for size in SIZES if size[0] <= 100] if quick else SIZES
    turns = 5 if quick else 15
    print(f"{torch.get_num_threads()} threads; a client's update is {MOVE:.0%} of its model\n")
    seconds = {size: table(*size, turns) for size in sizes}
    print_small_updates(turns)
    print_passes(turns)
    print_leases(turns)
    print_memory()
    print_growth(seconds)


def models(K: int, P: int, move: float = MOVE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The global model w, (P,), the clients' models W and those of a round before U, (K, P)."""
    random = np.random.default_rng(0)
    w = random.standard_normal(P, dtype=np.float32)
    W, U = (np.empty((K, P), np.float32) for _ in range(2))
    for row in (*W, *U):
        random.standard_normal(out=row, dtype=np.float32)
        row *= move
        row += w
    return w, W, U


def layers_of(P: int) -> list[slice]:
    """ResNet-18's own layers at its size; three dense layers otherwise."""
    if P == RESNET18:
        return list(Layout.of(resnet18(10)).layers)
    edges = [0, int(0.8 * P), int(0.98 * P), P]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def step_of(rule: Rule[Any], arrays: Sequence[Any], layers: list[slice] | None = None) -> Step:
    """One aggregation in mid-run: the rule has seen a round before."""
    w, W, U = arrays
    examples = np.arange(1, W.shape[0] + 1)
    _, state = rule.aggregate(rule.init(), Round(w, U, examples, layers=layers))
    return lambda: rule.aggregate(state, Round(w, W, examples, layers=layers))


def plain_fedavg(w: np.ndarray, W: np.ndarray) -> np.ndarray:
    """A loop over the clients with a temporary each, as the letter's code has it."""
    model = np.zeros_like(w)
    for row in W:
        model = model + np.float32(1 / len(W)) * row
    return model


def plain_fedhaw(w: np.ndarray, W: np.ndarray, U: np.ndarray) -> np.ndarray:
    """The same for FedHAW."""
    share = np.float32(1 / len(W))
    d = w - plain_fedavg(w, W)
    gamma = np.float32(-1e-9 * np.dot(d, w))
    lambdas = np.array([1e-9 * float(np.dot(d, share * (1 - share) * row)) for row in U])
    weights = np.exp(lambdas) / np.exp(lambdas).sum()
    model = np.zeros_like(w)
    for row, weight in zip(W, weights, strict=True):
        model = model + np.float32(weight) * row
    return np.asarray(np.exp(gamma) * model)


def flower_fedavg(W: np.ndarray, layers: list[slice]) -> Step | None:
    """Flower's real aggregation function on replies that hold the same numbers."""
    try:
        from flwr.app import ArrayRecord, MetricRecord, RecordDict
        from flwr.common import Array
        from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
    except ImportError:
        print("flwr is not installed: its column is left out")
        return None
    replies = [
        RecordDict(
            {
                "arrays": ArrayRecord(
                    {str(i): Array(row[layer]) for i, layer in enumerate(layers)}
                ),
                "metrics": MetricRecord({"num-examples": k + 1}),
            }
        )
        for k, row in enumerate(W)
    ]
    return lambda: aggregate_arrayrecords(replies, "num-examples")


def take_turns(steps: dict[str, Step], turns: int, pause: float = PAUSE) -> dict[str, float]:
    """Median seconds of each step; on a busy machine the least seconds of one core's work."""
    busy = BUSY in os.environ
    clock = time.process_time if busy else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(turns + 1):
        for name, step in steps.items():
            if pause and not busy:
                time.sleep(pause)
            start = clock()
            step()
            times[name].append(clock() - start)
    usual = min if busy else statistics.median
    return {name: usual(taken[1:]) for name, taken in times.items()}


def contenders(K: int, P: int, backend: str) -> dict[str, Step]:
    """What takes turns at one size, by name."""
    arrays = models(K, P)
    w, W, U = arrays
    layers = layers_of(P)
    if backend == "torch":
        tensors = [torch.from_numpy(array) for array in arrays]
        steps = {f"{name} (torch)": step_of(rule, tensors, layers) for name, rule in RULES.items()}
        return {"read W once": lambda: tensors[1].sum(), **steps}
    steps = {f"{name} (NumPy)": step_of(rule, arrays, layers) for name, rule in RULES.items()}
    steps["FedAvg, plain loop"] = lambda: plain_fedavg(w, W)
    steps["FedHAW, plain loop"] = lambda: plain_fedhaw(w, W, U)
    if flower := flower_fedavg(W, layers):
        steps["FedAvg, Flower"] = flower
    return steps


def measure(K: int, P: int, backend: str, turns: int) -> dict[str, float]:
    """Seconds of every contender; runs in a process of its own."""
    if BUSY in os.environ:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    large = K * P > 1e7
    return take_turns(contenders(K, P, backend), turns if large else 4 * turns, PAUSE * large)


def table(K: int, P: int, turns: int) -> dict[str, float]:
    """Time every contender at one size and print the table."""
    seconds: dict[str, float] = {}
    for backend in ("torch", "numpy"):
        seconds |= in_own_process(measure, K, P, backend, turns)
    read = seconds["read W once"]
    flower = seconds.get("FedAvg, Flower", float("nan"))
    size = 4 * K * P
    print(f"K = {K}, P = {P:,} ({size / 1e6:,.0f} MB a matrix)")
    print(f"{'':30}{'ms':>10}{'/ FedAvg':>10}{'/ Flower':>10}{'GB/s':>8}{'of read':>9}")
    for name, value in seconds.items():
        ours = seconds["FedAvg (torch)" if "torch" in name else "FedAvg (NumPy)"]
        line = f"{name:30}{value * 1e3:10.3f}{value / ours:10.2f}{value / flower:10.2f}"
        if "FedAvg" in name or name == "read W once":
            line += f"{size / value / 1e9:8.1f}{read / value:9.0%}"
        print(line)
    print(flush=True)
    return seconds


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in a fresh interpreter and return what it returns."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure_small_updates(backend: str, turns: int) -> dict[str, float]:
    """FedHAW where updates are tiny beside the model and d has to be formed from updates."""
    steps = {}
    for move in (MOVE, 1e-3):
        arrays: Any = models(10, RESNET18, move)
        if backend == "torch":
            arrays = [torch.from_numpy(array) for array in arrays]
        name = f"update of {move:.1%}, {backend}"
        steps[name] = step_of(RULES["FedHAW"], arrays, layers_of(RESNET18))
    return take_turns(steps, turns)


def print_small_updates(turns: int) -> None:
    """FedHAW by the size of the clients' updates."""
    print(f"FedHAW by size of the update, K = 10, P = {RESNET18:,}")
    for backend in ("torch", "numpy"):
        for name, value in in_own_process(measure_small_updates, backend, turns).items():
            print(f"{name:30}{value * 1e3:10.3f} ms")
    print(flush=True)


def print_passes(turns: int) -> None:
    """Python's share at a small model: FedHAW beside its three bare passes.

    The ratio depends on where the arrays happen to lie in the caches, so they are made anew a few
    times and the median of the ratios counts.
    """
    s = np.full(10, 0.1, np.float32)
    measured = []
    for _ in range(7):
        w, W, U = models(10, MNIST_MLP)
        step = step_of(RULES["FedHAW"], (w, W, U))

        def passes(w: np.ndarray = w, W: np.ndarray = W, U: np.ndarray = U) -> None:
            d = w - s @ W
            d @ w, U @ d, s @ W

        seconds = take_turns({"whole": step, "bare": passes}, 20 * turns, pause=0)
        measured.append((seconds["whole"] / seconds["bare"], seconds["whole"], seconds["bare"]))
    measured.sort()
    ratio, whole, bare = measured[len(measured) // 2]
    print(
        f"K = 10, P = {MNIST_MLP:,}: FedHAW {whole * 1e3:.3f} ms, its three passes alone "
        f"{bare * 1e3:.3f} ms, ratio {ratio:.2f} ({measured[0][0]:.2f} to {measured[-1][0]:.2f})\n"
    )


def measure_leases(backend: str, turns: int) -> dict[str, tuple[float, float]]:
    """Seconds of processor time with memory that is used again, and with fresh memory."""
    arrays: Any = models(10, RESNET18)
    if backend == "torch":
        arrays = [torch.from_numpy(array) for array in arrays]
    spent: dict[str, tuple[list[float], list[float]]] = {}
    steps = {name: step_of(RULES[name], arrays) for name in ("FedAvg", "FedHAW", "FedHAWAuto")}
    kept = {}  # the model of the round before, as a run holds it
    for _ in range(turns + 1):
        for name, step in steps.items():
            for side, smallest in enumerate((1 << 20, 1 << 60)):
                memory.WORTH_KEEPING = smallest
                start = time.process_time()
                kept[name, side] = step()
                spent.setdefault(name, ([], []))[side].append(time.process_time() - start)
    return {
        name: (statistics.median(lent[1:]), statistics.median(fresh[1:]))
        for name, (lent, fresh) in spent.items()
    }


def print_leases(turns: int) -> None:
    """What it is worth to use the memory of old models again: processor time, side by side."""
    print(f"memory used again or fresh, processor time, K = 10, P = {RESNET18:,}")
    for backend in ("torch", "numpy"):
        for name, (lent, fresh) in in_own_process(measure_leases, backend, turns).items():
            times = f"{lent * 1e3:9.1f} ms {fresh * 1e3:9.1f} ms"
            print(f"{name + ', ' + backend:28}{times}   fresh is {fresh / lent:.2f} times as slow")
    print(flush=True)


def print_memory() -> None:
    """What an aggregation allocates at its peak, in vectors of P float32."""
    w, W, U = models(10, RESNET18)
    print(f"working memory beyond the two matrices, K = 10, P = {RESNET18:,}")
    for name, rule in RULES.items():
        step = step_of(rule, (w, W, U), layers_of(RESNET18))
        memory.release()  # or a result would lie in memory that counts for the round before
        tracemalloc.start()
        step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{name:28}{peak / w.nbytes:8.2f} vectors of P, the result among them")
    print()


def print_growth(seconds: dict[tuple[int, int], dict[str, float]]) -> None:
    """Exponents of time ~ P^a at K = 10 and time ~ K^b at the MNIST MLP."""
    print("growth: time ~ P^a (from the Dogs head to ResNet-18) and ~ K^b, fitted")
    by_P = [size for size in seconds if size[0] == 10 and size[1] >= DOGS_HEAD]
    by_K = [size for size in seconds if size[1] == MNIST_MLP]
    for name in ("FedAvg (NumPy)", "FedHAW (NumPy)", "FedAdp (NumPy)", "FedHAW (torch)"):
        a, b = (
            np.polyfit(
                [np.log(size[axis]) for size in sizes],
                [np.log(seconds[size][name]) for size in sizes],
                1,
            )[0]
            for axis, sizes in ((1, by_P), (0, by_K))
        )
        print(f"{name:28}a = {a:.2f}   b = {b:.2f}")


if __name__ == "__main__":
    main()

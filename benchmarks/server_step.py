"""What one server step costs: our rules, a plain loop, Flower's FedAvg, and reading memory.

    make bench                                    all sizes, a few minutes
    python benchmarks/server_step.py --quick
    python benchmarks/server_step.py one-core     ResNet-18's size, on a machine that is not idle
    python benchmarks/server_step.py busy         every rule, alone and beside spinning processes
    python benchmarks/server_step.py growth       by clients in a round, parameters, clients in all

Contenders take turns in one process, so that what else the machine does hits all alike; the median
of the turns counts. NumPy's BLAS and torch each keep threads that spin for a while after a call and
would slow the other's next one, so each backend has a process of its own. Times are of whole calls:
validation, guards and result included. On a machine that is not idle times mean little; `one-core`
takes the least processor time on one core instead. `--save` writes what is printed to
benchmarks/results.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from record import Record

import fedhaw
from fedhaw.models import Layout, resnet18
from fedhaw.rules import Round, Rule, memory, registry
from fedhaw.rules.threads import available_cores, share_out

MNIST_MLP, DOGS_HEAD, RESNET18 = 118_282, 293_752, 11_173_962
SIZES = [(10, MNIST_MLP), (10, DOGS_HEAD), (10, RESNET18), (100, MNIST_MLP), (1000, MNIST_MLP)]
RULES: dict[str, Rule[Any]] = {
    "FedAvg": fedhaw.FedAvg(),
    "FedHyper": fedhaw.FedHyperG(),
    "FedHAW": fedhaw.FedHAW(eta=0.1, eta_gamma=1e-9, eta_lambda=1e-6),
    "FedHAW-auto": fedhaw.FedHAWAuto(),
    "FedAdp": fedhaw.FedAdp(),
    "FedLWS": fedhaw.FedLWS(),
    "FedLAW": fedhaw.FedLAW(lambda model: (0.0, model), epochs=1, lr=1e-9),  # one proxy step
}
EVERY_RULE = {
    entry.title: RULES.get(entry.title) or entry.cls() for entry in registry.RULES.values()
}
BACKENDS = {"NumPy": lambda array: array, "torch": torch.from_numpy}
MOVE = 0.1  # length of a client's update, as a share of the model's
SPINNING = 4  # processes that do nothing but keep the cores busy

ONE_CORE = "FEDHAW_BENCH_ONE_CORE"

PAUSE = 0.15  # seconds between large steps: BLAS threads spin for 0.1 s after a call
AWAKE = 0.02  # seconds in which all cores work before a large step

Step = Callable[[], Any]


def main() -> None:
    """Print every table of a question."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("question", nargs="?", choices=QUESTIONS, default="sizes")
    parser.add_argument("--quick", action="store_true", help="fewer turns, no K = 1000")
    parser.add_argument("--save", action="store_true", help="write the file in benchmarks/results")
    args = parser.parse_args()
    of_sizes = args.question == "sizes"
    name = "server_step" if of_sizes else f"server_step_{args.question.replace('-', '_')}"
    with Record(name, args.save) as record:
        QUESTIONS[args.question](record, args.quick)


def sizes(record: Record, quick: bool) -> None:
    """Every contender at every size."""
    turns = 5 if quick else 15
    record.say(f"a client's update is {MOVE:.0%} of its model")
    for K, P in SIZES:
        if not quick or K <= 100:
            table(record, K, P, turns)
    small_updates(record, turns)
    passes(record, turns)
    leases(record, turns)
    working_memory(record)


def one_core(record: Record, quick: bool) -> None:
    """ResNet-18's size by processor time."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", ONE_CORE: "1"}
    record.say("least processor time on one core")
    table(record, 10, RESNET18, 4 if quick else 8)


def busy(record: Record, quick: bool) -> None:
    """How much longer a step takes while other processes want the cores."""
    measured = {
        backend: in_own_process(beside_others, backend, 50 if quick else 200)
        for backend in BACKENDS
    }
    rows, most = [], 0.0
    for name in EVERY_RULE:
        cells: list[str] = []
        for quiet, loaded in measured.values():
            ratio = loaded[name] / quiet[name]
            cells += [f"{quiet[name] * 1e3:.3f}", f"{loaded[name] * 1e3:.3f}", f"{ratio:.2f}"]
            most = max(most, ratio)
        rows.append((name, *cells))
    columns = [f"{b} {what}" for b in BACKENDS for what in ("quiet ms", "busy ms", "busy / quiet")]
    title = f"Alone, and beside {SPINNING} spinning processes: K = 10, P = {MNIST_MLP:,}, medians"
    record.table(title, ("", *columns), rows)
    record.say(f"\nNo rule took more than {most:.2f} times as long as on the quiet machine.")


def beside_others(backend: str, turns: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of every rule alone, and beside processes that spin."""
    arrays = [BACKENDS[backend](array) for array in models(10, MNIST_MLP)]
    layers = layers_of(MNIST_MLP)
    steps = {name: step_of(rule, arrays, layers) for name, rule in EVERY_RULE.items()}
    quiet = take_turns(steps, turns, pause=0)
    with spinning(SPINNING):
        return quiet, take_turns(steps, turns, pause=0)


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many processes that never wait."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    time.sleep(1)  # until all have started
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


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


def take_turns(steps: Mapping[str, Step], turns: int, pause: float = PAUSE) -> dict[str, float]:
    """Median seconds of each step; of one core the least seconds of its work."""
    alone = ONE_CORE in os.environ
    clock = time.process_time if alone else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(turns + 1):
        for name, step in steps.items():
            if pause and not alone:
                time.sleep(pause)
                keep_cores_awake()
            start = clock()
            step()
            times[name].append(clock() - start)
    usual = min if alone else statistics.median
    return {name: usual(taken[1:]) for name, taken in times.items()}


def keep_cores_awake() -> None:
    """All cores at work, as they are on a server that has just decoded the last upload.

    Of threads that wake after a pause, two may share a core for 15 ms before one is moved.
    """
    end = time.perf_counter() + AWAKE

    def work() -> None:
        numbers = np.ones(1 << 18, np.float32)
        while time.perf_counter() < end:
            np.add(numbers, 1, out=numbers)

    share_out(work, available_cores())


def measure(K: int, P: int, backend: str, turns: int) -> dict[str, float]:
    """Seconds of every contender; runs in a process of its own."""
    if ONE_CORE in os.environ:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    w, W, U = models(K, P)
    layers, large = layers_of(P), K * P > 1e7
    arrays = [BACKENDS[backend](array) for array in (w, W, U)]
    steps = {name: step_of(rule, arrays, layers) for name, rule in RULES.items()}
    if backend == "torch":
        steps = {"read W once": arrays[1].sum} | steps
    else:
        steps["FedAvg, plain loop"] = lambda: plain_fedavg(w, W)
        steps["FedHAW, plain loop"] = lambda: plain_fedhaw(w, W, U)
        if flower := flower_fedavg(W, layers):
            steps["FedAvg, Flower"] = flower
    return take_turns(steps, turns if large else 4 * turns, PAUSE * large)


def table(record: Record, K: int, P: int, turns: int) -> None:
    """Every contender at one size."""
    seconds = {backend: in_own_process(measure, K, P, backend, turns) for backend in BACKENDS}
    flower = seconds["NumPy"].get("FedAvg, Flower", float("nan"))
    names = dict.fromkeys(name for of in seconds.values() for name in of)

    def cells(name: str, of: Mapping[str, float]) -> list[str]:
        if name not in of:
            return ["-"] * 3
        ratios = of[name] / of["FedAvg"], of[name] / flower
        return [f"{of[name] * 1e3:.3f}", *(f"{ratio:.2f}" for ratio in ratios)]

    record.table(
        f"K = {K}, P = {P:,} ({4 * K * P / 1e6:,.0f} MB a matrix)",
        ("", *(f"{b} {what}" for b in BACKENDS for what in ("ms", "/ FedAvg", "/ Flower"))),
        ((name, *(cell for of in seconds.values() for cell in cells(name, of))) for name in names),
    )
    read = seconds["torch"]["read W once"]
    speeds = ", ".join(f"{read / of['FedAvg']:.0%} ({b})" for b, of in seconds.items())
    record.say(f"\nFedAvg reads at {speeds} of the speed of `read W once`.")


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in a fresh interpreter and return what it returns."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def small_updates(record: Record, turns: int) -> None:
    """FedHAW where rounding allows d to be a difference of models, and where it does not."""
    rows = [
        (backend, *(f"{ms * 1e3:.3f}" for ms in in_own_process(by_rates, backend, turns).values()))
        for backend in BACKENDS
    ]
    title = f"FedHAW by its rates, K = 10, P = {RESNET18:,}: d from models, d from updates"
    record.table(title, ("", "models ms", "updates ms"), rows)


def by_rates(backend: str, turns: int) -> dict[str, float]:
    """Seconds of FedHAW at rates so small, and so large, that d is formed in either way."""
    arrays = [BACKENDS[backend](array) for array in models(10, RESNET18)]
    rules = {rate: fedhaw.FedHAW(0.1, rate, rate) for rate in (1e-9, 1e-2)}
    return take_turns({f"{r}": step_of(rule, arrays) for r, rule in rules.items()}, turns)


def passes(record: Record, turns: int) -> None:
    """Python's share at a small model: FedHAW beside its three bare passes.

    The ratio depends on where the arrays happen to lie in the caches, so they are made anew a few
    times.
    """
    s = np.full(10, 0.1, np.float32)
    rows = []
    for _ in range(7):
        w, W, U = models(10, MNIST_MLP)

        def bare(w: np.ndarray = w, W: np.ndarray = W, U: np.ndarray = U) -> None:
            d = w - s @ W
            d @ w, U @ d, s @ W

        steps = {"whole": step_of(RULES["FedHAW"], (w, W, U)), "bare": bare}
        seconds = take_turns(steps, 20 * turns, pause=0)
        whole, three = seconds["whole"] * 1e3, seconds["bare"] * 1e3
        rows.append((f"{whole:.3f}", f"{three:.3f}", f"{whole / three:.2f}"))
    rows.sort(key=lambda row: float(row[-1]))
    named = {"least": rows[0], "median": rows[len(rows) // 2], "most": rows[-1]}
    title = f"FedHAW beside its three passes alone, NumPy, K = 10, P = {MNIST_MLP:,}"
    columns = ("ratio", "FedHAW ms", "passes ms", "FedHAW / passes")
    record.table(title, columns, [(name, *row) for name, row in named.items()])


def leases(record: Record, turns: int) -> None:
    """What it is worth to use the memory of old models again."""
    rows = [
        (f"{name}, {backend}", f"{lent * 1e3:.1f}", f"{fresh * 1e3:.1f}", f"{fresh / lent:.2f}")
        for backend in BACKENDS
        for name, (lent, fresh) in in_own_process(with_and_without, backend, turns).items()
    ]
    title = f"Memory used again or fresh, processor time, K = 10, P = {RESNET18:,}"
    record.table(title, ("", "again ms", "fresh ms", "fresh / again"), rows)


def with_and_without(backend: str, turns: int) -> dict[str, tuple[float, float]]:
    """Seconds of processor time with memory that is used again, and with fresh memory."""
    arrays = [BACKENDS[backend](array) for array in models(10, RESNET18)]
    spent: dict[str, tuple[list[float], list[float]]] = {}
    steps = {name: step_of(RULES[name], arrays) for name in ("FedAvg", "FedHAW", "FedHAW-auto")}
    kept, usual = {}, memory.WORTH_KEEPING  # the model of the round before, as a run holds it
    for _ in range(turns + 1):
        for name, step in steps.items():
            for side, smallest in enumerate((usual, 1 << 60)):
                memory.WORTH_KEEPING = smallest
                start = time.process_time()
                kept[name, side] = step()
                spent.setdefault(name, ([], []))[side].append(time.process_time() - start)
    return {
        name: (statistics.median(lent[1:]), statistics.median(fresh[1:]))
        for name, (lent, fresh) in spent.items()
    }


def working_memory(record: Record) -> None:
    """What an aggregation allocates at its peak."""
    w, W, U = models(10, RESNET18)

    def peak(rule: Rule[Any]) -> float:
        step = step_of(rule, (w, W, U), layers_of(RESNET18))
        memory.release()  # or a result would lie in memory that counts for the round before
        tracemalloc.start()
        step()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most / w.nbytes

    record.table(
        f"Memory beyond the two matrices, the result among it, K = 10, P = {RESNET18:,}",
        ("", "vectors of P"),
        ((name, f"{peak(rule):.2f}") for name, rule in RULES.items()),
    )


def growth(record: Record, quick: bool) -> None:
    """Time and memory by clients in a round, parameters, and clients in all, with exponents."""
    turns = 3 if quick else 7
    grown(
        record, turns, "K clients in a round, P = 10,000", by_cohort, (10, 100, 1_000, 10_000), 100
    )
    largest = 10_000_000 if quick else 100_000_000
    grown(record, turns, "P parameters, 4 clients, previous models in bfloat16", by_parameters,
          [P for P in (10**5, 10**6, 10**7, 10**8) if largest >= P], 10**6)  # fmt: skip
    grown(record, turns, "10 of N clients in a round, all seen before, P = 1,000", by_clients,
          (10, 100, 1_000, 10_000, 100_000), 1_000)  # fmt: skip


def grown(
    record: Record,
    turns: int,
    title: str,
    measured: Callable[[str, int, int], dict[str, float]],
    sizes: Sequence[int],
    fitted_from: int,
) -> None:
    """A table of ms by size, peak memory, and the exponents of both."""
    found: dict[str, dict[int, float]] = {
        f"{name}, {backend}": {}
        for backend in BACKENDS
        for name in (*GROWING, "peak MB")
    }  # fmt: skip
    for backend in BACKENDS:
        for size in sizes:
            for name, value in in_own_process(measured, backend, size, turns).items():
                found[f"{name}, {backend}"][size] = value
    rows = []
    for name, by_size in found.items():
        if by_size:
            fitted = {n: v for n, v in by_size.items() if n >= fitted_from}
            exponent = np.polyfit(np.log([*fitted]), np.log([*fitted.values()]), 1)[0]
            cells = [f"{by_size[n]:.3f}" if n in by_size else "-" for n in sizes]
            rows.append((name, *cells, f"{exponent:.2f}"))
    columns = ("ms", *(f"{size:,}" for size in sizes), f"exponent from {fitted_from:,}")
    record.table(title, columns, rows)


GROWING = ("FedAvg", "FedHAW", "FedHAW-auto", "FedAdp", "FedLWS")


def timed(steps: Mapping[str, Step], turns: int) -> dict[str, float]:
    """Median ms of each step, and what the process took of memory at its peak."""
    ms = {name: 1e3 * seconds for name, seconds in take_turns(steps, turns, pause=0).items()}
    return ms | {"peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def by_cohort(backend: str, K: int, turns: int) -> dict[str, float]:
    """K clients in a round; the default compares every two clients, so not with 10,000."""
    arrays = [BACKENDS[backend](array) for array in models(K, 10_000)]
    names = [name for name in GROWING if K <= 1_000 or name != "FedHAW-auto"]
    return timed({name: step_of(RULES[name], arrays, layers_of(10_000)) for name in names}, turns)


def by_parameters(backend: str, P: int, turns: int) -> dict[str, float]:
    """P parameters; of FedHAW's memory only half of the previous models' is asked for."""
    w, W, U = (BACKENDS[backend](array) for array in models(4, P))
    average, rule = fedhaw.FedAvg(), fedhaw.FedHAW(0.1, 1e-9, 1e-6, history_dtype="bfloat16")
    examples = np.arange(1, 5)
    _, state = rule.aggregate(rule.init(), Round(w, U, examples))
    del U
    steps = {
        "FedAvg": lambda: average.aggregate(average.init(), Round(w, W, examples)),
        "FedHAW": lambda: rule.aggregate(state, Round(w, W, examples)),
    }
    return timed(steps, turns)


def by_clients(backend: str, clients: int, turns: int) -> dict[str, float]:
    """Ten of many clients in a round, all of whom were seen before."""
    w, W, _ = models(clients, 1_000)
    w, W = BACKENDS[backend](w), BACKENDS[backend](W)
    steps: dict[str, Step] = {}
    for name in ("FedAvg", "FedHAW", "FedAdp"):
        rule, examples = RULES[name], np.ones(clients)
        _, state = rule.aggregate(rule.init(), Round(w, W, examples))
        # From here on only ten take part: the first such round still looks at everybody's models.
        few = Round(w, W[:10], examples[:10])
        _, state = rule.aggregate(state, few)
        steps[name] = partial(rule.aggregate, state, few)
    return timed(steps, turns * 10)


QUESTIONS: dict[str, Callable[[Record, bool], None]] = {
    "sizes": sizes,
    "one-core": one_core,
    "busy": busy,
    "growth": growth,
}


if __name__ == "__main__":
    main()

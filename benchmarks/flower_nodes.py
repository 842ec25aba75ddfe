"""How the server inside Flower grows with the number of nodes, beside Flower's own FedAvg.

    python benchmarks/flower_nodes.py [--nodes 1000,10000] [--save]
    python benchmarks/flower_nodes.py ray [--nodes 1000] [--save]

A model of 1,000 numbers, so that what counts is work per node and not per number. Timed are the
four parts of a round that a strategy has: configuring training, aggregating the models, configuring
the evaluation, aggregating its results; all replies lie in memory. The strategies take turns, round
by round, in one process; the first round, which warms up and learns who is who, does not count.

Python's collector of cycles now and then goes through all that is in memory, which takes longer
than configuring a round, and falls into one part or another by chance. So in every other round it
is held back, of which the parts are shown, and in the others left alone: "round" is their sum.

`ray` runs whole federations instead, in Flower's simulation on Ray: five rounds of nodes that send
back the model they got, a little way off, each strategy in a process of its own.
"""

import argparse
import gc
import logging
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from flwr.supercore.task_identity import TaskIdentity
from record import Record
from simulation_peers.echo import PARAMETERS, client_app, reply

import fedhaw
from fedhaw.flower import RuleStrategy

ROUNDS, RAY_ROUNDS = 9, 5
PARTS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
ROUND = "round"
STRATEGIES: dict[str, Callable[[], Any]] = {
    "Flower FedAvg": FedAvg,
    "fedhaw FedAvg": lambda: RuleStrategy(fedhaw.FedAvg()),
    "fedhaw FedHAW": lambda: RuleStrategy(fedhaw.FedHAW(0.1, 1e-4, 1e-2)),
    "fedhaw default": RuleStrategy,
}
ON_RAY = ("Flower FedAvg", "fedhaw default")


class Nodes:
    """A grid as far as a strategy's parts look at one."""

    def __init__(self, count: int) -> None:
        self._nodes = [SimpleNamespace(node_id=n, name="") for n in range(1000, 1000 + count)]

    def get_node_ids(self) -> list[int]:
        """All nodes' numbers."""
        return [node.node_id for node in self._nodes]

    def get_nodes(self) -> list[Any]:
        """The same, as Flower lists them."""
        return self._nodes


def replies(messages: list[Message], server_round: int) -> list[Message]:
    """What all nodes answer; their messages get the numbers that a grid gives them."""
    for number, message in enumerate(messages):
        kind = message.metadata.message_type
        message.metadata.__dict__["_message_id"] = f"{kind}.{server_round}.{number}"
    return [reply(message, server_round) for message in messages]


def timed(part: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a part of a round gives, as a list where it is many things, and how long it took."""
    begin = time.process_time()
    made = part(*arguments)
    made = list(made) if isinstance(made, Iterable) and not isinstance(made, tuple) else made
    return made, time.process_time() - begin


def measure(nodes: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every part and of whole rounds, by strategy, in each round that counts."""
    grid = Nodes(nodes)
    seconds: dict[str, dict[str, list[float]]] = {
        name: {part: [] for part in (*PARTS, ROUND)} for name in STRATEGIES
    }
    strategies = {name: make() for name, make in STRATEGIES.items()}
    arrays = dict.fromkeys(STRATEGIES, ArrayRecord({"w": Array(np.zeros(PARAMETERS, np.float32))}))
    for server_round in range(1, 2 * ROUNDS + 2):
        held = server_round % 2 == 0
        for name, strategy in strategies.items():
            took: dict[str, float] = {}
            if held:
                gc.collect()
                gc.disable()
            for kind in ("train", "evaluate"):
                question = (server_round, arrays[name], ConfigRecord(), grid)
                messages, took[f"configure_{kind}"] = timed(
                    getattr(strategy, f"configure_{kind}"), *question
                )
                answers = replies(messages, server_round)
                made, took[f"aggregate_{kind}"] = timed(
                    getattr(strategy, f"aggregate_{kind}"), server_round, answers
                )
                if kind == "train":
                    arrays[name] = made[0]
            gc.enable()
            for part in PARTS if held else ():
                seconds[name][part].append(took[part])
            if not held and server_round > 1:
                seconds[name][ROUND].append(sum(took.values()))
    return seconds


def table(record: Record, nodes: int, seconds: dict[str, dict[str, list[float]]]) -> None:
    """Medians, and how they compare with Flower's."""
    title = f"{nodes:,} nodes, {PARAMETERS:,} numbers a model; median of {ROUNDS} rounds"
    columns = ["", *(f"{part} {unit}" for part in (*PARTS, ROUND) for unit in ("s", "/ Flower"))]
    medians = {
        name: [statistics.median(took) for took in parts.values()]
        for name, parts in seconds.items()
    }
    rows = []
    for name, own in medians.items():
        pairs = zip(own, medians["Flower FedAvg"], strict=True)
        rows.append([name, *(c for s, flower in pairs for c in (f"{s:.3f}", f"{s / flower:.2f}"))])
    record.table(title, columns, rows)


def seconds_on_ray(name: str, nodes: int) -> list[float]:
    """Seconds of every round in Flower's simulation; runs in a process of its own."""
    server, ends = ServerApp(), [0.0]

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        def note_the_time(*_: object) -> None:
            ends.append(time.perf_counter())

        initial = ArrayRecord({"w": Array(np.zeros(PARAMETERS, np.float32))})
        ends[0] = time.perf_counter()
        STRATEGIES[name]().start(
            grid, initial, num_rounds=RAY_ROUNDS, evaluate_fn=note_the_time, timeout=600
        )

    run_simulation(server, client_app(), num_supernodes=nodes)
    return np.diff(ends[1:]).tolist()  # the first end is that of the initial model


def ray_table(record: Record, nodes: int) -> None:
    """Whole rounds on Ray."""
    spawn, seconds = multiprocessing.get_context("spawn"), {}
    for name in ON_RAY:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            seconds[name] = pool.submit(seconds_on_ray, name, nodes).result()
    flower = sum(seconds["Flower FedAvg"])
    rows = [
        (name, f"{sum(own):.0f}", f"{sum(own) / flower:.2f}", " ".join(f"{s:.0f}" for s in own))
        for name, own in seconds.items()
    ]
    title = f"{nodes:,} nodes on Ray, {RAY_ROUNDS} rounds with evaluation"
    record.table(title, ("", "s", "/ Flower", "by round, s"), rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("question", nargs="?", choices=["parts", "ray"], default="parts")
    arguments.add_argument("--nodes", help="how many; 1000,10000 by default, 1000 on Ray")
    arguments.add_argument(
        "--save", action="store_true", help="write the file in benchmarks/results"
    )
    options = arguments.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    on_ray = options.question == "ray"
    counts = [int(n) for n in (options.nodes or ("1000" if on_ray else "1000,10000")).split(",")]
    with Record("flower_nodes_ray" if on_ray else "flower_nodes", options.save) as record:
        for nodes in counts:
            ray_table(record, nodes) if on_ray else table(record, nodes, measure(nodes))


if __name__ == "__main__":
    main()

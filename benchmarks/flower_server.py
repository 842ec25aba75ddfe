"""What a round costs the server inside Flower, beside Flower's own FedAvg.

    python benchmarks/flower_server.py --save

A model of ResNet-18's size, batch norm's statistics and counters included, and ten clients' replies
as they come off the wire. Timed is `aggregate_train`: from the replies' bytes, all in memory as
Flower's own grid hands them over, to the record of the next global model. A pause before each round
stands for the clients' work: BLAS threads spin for 0.1 s after a call, which no real round would
notice. The strategies take turns in processes of their own, so that what else the machine does hits
all alike; "best" is the best round of all, "median" that of all rounds. Peak memory is what the
rounds add to a process that holds the replies already.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from record import Record

CLIENTS = 10
PAUSE = 0.2  # seconds before each round
MATRICES = {"Flower FedAvg": 0, "fedhaw FedAvg": 1, "fedhaw FedHAW": 2, "fedhaw default": 2}
STRATEGIES = tuple(MATRICES)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=10, help="timed rounds a turn")
    arguments.add_argument("--turns", type=int, default=3, help="of each strategy")
    arguments.add_argument("--save", action="store_true", help="write results/flower_server.txt")
    arguments.add_argument("--clients", type=int, default=CLIENTS)
    arguments.add_argument("--width", type=int, default=64, help="of the ResNet-18")
    arguments.add_argument("--measure", choices=STRATEGIES, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.clients, options.width, options.rounds)))
        return
    with Record("flower_server", options.save) as record:
        turns = [
            {name: in_own_process(name, options) for name in STRATEGIES}
            for _ in range(options.turns)
        ]
        tables(record, turns, options.clients)


def in_own_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    numbers = [f"--{key}={getattr(options, key)}" for key in ("rounds", "clients", "width")]
    command = [sys.executable, __file__, "--measure", name, *numbers]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def tables(record: Record, turns: list[dict[str, dict[str, Any]]], clients: int) -> None:
    """Time beside Flower's FedAvg, and an account of the memory, in models."""
    flower = STRATEGIES[0]
    model = turns[0][flower]["model"]
    seconds = {name: [s for turn in turns for s in turn[name]["seconds"]] for name in STRATEGIES}
    record.say(
        f"{clients} clients, {model / 4:,.0f} numbers ({model / 2**20:.1f} MiB) a model; "
        f"{len(seconds[flower])} rounds each in {len(turns)} turns"
    )
    rows: list[tuple[object, ...]] = []
    for name, own in seconds.items():
        best, median = min(own), statistics.median(own)
        by_turn = (min(turn[name]["seconds"]) / min(turn[flower]["seconds"]) for turn in turns)
        of_best, of_median = (
            best / min(seconds[flower]),
            median / statistics.median(seconds[flower]),
        )
        rows.append(
            (name, f"{best:.3f}", f"{median:.3f}", f"{of_best:.2f}", f"{of_median:.2f}",
             " ".join(f"{ratio:.2f}" for ratio in by_turn))
        )  # fmt: skip
    columns = ("", "best s", "median s", "best / Flower", "median / Flower", "best, by turn")
    record.table("A round, from the bytes of the replies", columns, rows)
    peaks = {name: max(turn[name]["peak"] for turn in turns) / model for name in STRATEGIES}
    account = []
    for name, peak in peaks.items():
        matrices = MATRICES[name] * clients
        rest = peak - matrices
        account.append(
            (name, f"{peak:.1f}", matrices, f"{rest:.1f}", f"{rest - peaks[flower]:.1f}")
        )
    parts = ("", "in all", "in K x P matrices", "the rest", "beyond Flower's")
    record.table("Peak memory beyond the replies, in models", parts, account)


def measure(name: str, clients: int, width: int, rounds: int) -> dict[str, Any]:
    """Time and peak memory of one strategy; the first two rounds, which warm up, do not count."""
    import logging

    from flwr.app import ConfigRecord, Message
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    import fedhaw
    from fedhaw.flower import RuleStrategy

    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    arrays, contents = federation(clients, width)
    makers: dict[str, Callable[[], Any]] = {
        "Flower FedAvg": FedAvg,
        "fedhaw FedAvg": lambda: RuleStrategy(fedhaw.FedAvg()),
        "fedhaw FedHAW": lambda: RuleStrategy(fedhaw.FedHAW(1e-1, 1e-5, 1e-2)),
        "fedhaw default": RuleStrategy,  # FedHAW-auto
    }
    strategy = makers[name]()
    grid = Nodes(clients)
    model = sum(array.numpy().nbytes for array in arrays.values())
    before = memory("VmRSS")
    forget_peak()
    seconds = []
    for server_round in range(1, rounds + 3):
        messages = list(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"{server_round}.{number}"
        replies = [
            Message(content, reply_to=message)
            for content, message in zip(contents, messages, strict=True)
        ]
        time.sleep(PAUSE)
        begin = time.perf_counter()
        new, _ = strategy.aggregate_train(server_round, replies)
        seconds.append(time.perf_counter() - begin)
        assert new is not None
        arrays = new
    peak = memory("VmHWM") - before
    return {"seconds": seconds[2:], "peak": peak, "model": model}


def federation(clients: int, width: int) -> tuple[Any, list[Any]]:
    """A global model and one reply's content per client, each a little way off from it."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

    from fedhaw.models import resnet18

    state = {name: t.numpy() for name, t in resnet18(10, width).state_dict().items()}
    random = np.random.default_rng(0)

    def record(distance: float) -> ArrayRecord:
        arrays = ArrayRecord()
        for name, values in state.items():
            moved = values
            if values.dtype.kind == "f":
                moved = values + distance * random.standard_normal(values.shape, dtype=np.float32)
            arrays[name] = Array(np.asarray(moved, dtype=values.dtype))
        return arrays

    contents = [
        RecordDict(
            {
                "arrays": record(1e-3),
                "metrics": MetricRecord({"num-examples": 100 + k}),
                "client": ConfigRecord({"client-id": str(k)}),
            }
        )
        for k in range(clients)
    ]
    return record(0.0), contents


class Nodes:
    """A grid as far as `configure_train` looks at one."""

    def __init__(self, count: int) -> None:
        self._ids = list(range(1000, 1000 + count))

    def get_node_ids(self) -> list[int]:
        return self._ids

    def get_nodes(self) -> Iterable[Any]:
        from flwr.proto.node_pb2 import NodeInfo

        return [NodeInfo(node_id=node) for node in self._ids]


def memory(line: str) -> int:
    """A line of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{line}:")[1].split()[0]) * 1024


def forget_peak() -> None:
    """Start the kernel's peak anew from the present size."""
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    main()

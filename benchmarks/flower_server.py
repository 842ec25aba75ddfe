"""What a round costs the server inside Flower, beside Flower's own FedAvg.

    python benchmarks/flower_server.py

A model of ResNet-18's size, batch norm's statistics and counters included, and ten clients' replies
as they come off the wire. Timed is `aggregate_train`: from the replies' bytes to the record of the
next global model. Each strategy runs in a process of its own; peak memory is what the rounds add
to a process that holds the replies already. Strategies are compared by their best round, which is
what is left when the machine does nothing else.
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

CLIENTS = 10
STRATEGIES = ("Flower FedAvg", "fedhaw FedAvg", "fedhaw FedHAW")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=15, help="timed rounds, default 15")
    arguments.add_argument("--clients", type=int, default=CLIENTS)
    arguments.add_argument("--width", type=int, default=64, help="of the ResNet-18")
    arguments.add_argument("--measure", choices=STRATEGIES, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.clients, options.width, options.rounds)))
        return
    results = {name: in_own_process(name, options) for name in STRATEGIES}
    print_table(results, options.clients)


def in_own_process(name: str, options: argparse.Namespace) -> dict[str, float]:
    numbers = [f"--{key}={getattr(options, key)}" for key in ("rounds", "clients", "width")]
    command = [sys.executable, __file__, "--measure", name, *numbers]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def print_table(results: dict[str, dict[str, float]], clients: int) -> None:
    first = next(iter(results.values()))
    model = first["model"] / 2**20
    print(f"{clients} clients, {first['model'] / 4:,.0f} numbers ({model:.1f} MiB) a model\n")
    print(f"{'':16}{'best s':>8}{'median s':>10}{'to Flower':>11}{'peak MiB':>10}{'models':>8}")
    for name, result in results.items():
        ratio, peak = result["best"] / first["best"], result["peak"] / 2**20
        print(
            f"{name:16}{result['best']:8.3f}{result['median']:10.3f}{ratio:10.2f}x"
            f"{peak:10.0f}{peak / model:8.1f}"
        )


def measure(name: str, clients: int, width: int, rounds: int) -> dict[str, float]:
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
        begin = time.perf_counter()
        new, _ = strategy.aggregate_train(server_round, replies)
        seconds.append(time.perf_counter() - begin)
        assert new is not None
        arrays = new
    peak = memory("VmHWM") - before
    timed = seconds[2:]
    median = statistics.median(timed)
    return {"best": min(timed), "median": median, "peak": peak, "model": model}


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

"""A real federation over links that really break: Flower's FedAvg beside fedhaw's rules.

    sudo python benchmarks/broken_network.py            # needs root and iproute2; Linux only

A SuperLink and K SuperNodes run on this machine, each in a network namespace of its own, joined by
veth pairs to a bridge in one more namespace; nothing of the host's own network is touched. By a
seeded schedule links are taken down in the middle of a round and up again some time later, so that
downloads and uploads fail, TCP connections stall, and heartbeats go missing. Every strategy meets
the same breaks at the same points of the same rounds. Where the kernel has netem, --delay and
--loss add both to every link.

The app is examples/flower with Flower's own FedAvg as an alternative server. Printed are the rounds
that were finished, the accuracy, the uploads that were lost, and where the time went. A client's
upload is lost by its *link* if that was down at some time in the round; *after* a break if it was
down in the round before, so that the node was spared or still finding its way back; and otherwise
to the *load* of the machine, on which it missed the deadline over a link that held. *Late* are the
lost ones that came in a later round and counted there.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from record import Record

BIN = Path(sys.executable).parent
EXAMPLE = Path(__file__).parents[1] / "examples" / "flower"
PORT = 18080
SERVER = "10.77.0.1"
STRATEGIES: dict[str, dict[str, str | int]] = {
    "Flower FedAvg": {"peer": "flower"},
    "FedAvg, late is lost": {"rule": "fedavg", "late-rounds": 0},
    "FedAvg": {"rule": "fedavg"},
    "FedHAW": {"rule": "fedhaw"},
    "FedHAW-auto, late is lost": {"rule": "fedhaw-auto", "late-rounds": 0},
    "FedHAW-auto": {"rule": "fedhaw-auto"},
}  # by the settings of the app that make it

LATE = "came late and counts"  # in a round's note
COLUMNS = (
    "", "rounds", "accuracy %", "lost, by round", "by link", "after", "by load", "late", "waited s",
    "to the deadline", "undisturbed rounds, s",
)  # fmt: skip

PEER = '''
"""Flower's own FedAvg on the example's federation; writes a line a round."""

import json, time
from pathlib import Path
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from fedhaw.flower.client import to_arrays, to_vector
from fedhaw.models import Evaluator
from fedhaw_app.federation import federation_of
from fedhaw_app.server import main as ours

app = ServerApp()

class Counting(FedAvg):
    """FedAvg that remembers how many models it got."""
    got = frozenset()
    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.got = {str(record["client-id"]) for reply in replies if reply.has_content()
                    for record in reply.content.config_records.values() if "client-id" in record}
        return super().aggregate_train(server_round, replies)

@app.main()
def main(grid, context):
    config = context.run_config
    if config["peer"] != "flower":
        return ours(grid, context)
    _, federation = federation_of(context)
    clients, rounds = federation.clients, federation.settings["rounds"]
    layout, (x,), y = federation.layout, federation.x_test.values(), federation.y_test
    evaluator = Evaluator(federation.module, layout)
    out = Path(config["out"]) / "history.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    began = [time.perf_counter()]
    strategy = Counting(fraction_evaluate=0.0, min_available_nodes=clients)
    def evaluate(server_round, arrays):
        now = time.perf_counter()
        accuracy = evaluator(to_vector(layout, arrays), x, y)["accuracy"]
        line = {"kind": "round", "round": server_round - 1, "evaluation": {"accuracy": accuracy},
                "lost": [str(k) for k in range(clients) if str(k) not in strategy.got],
                "seconds": {"train": now - began[0]}}
        began[0] = now
        if server_round:
            with out.open("a") as file:
                file.write(json.dumps(line) + "\\n")
        strategy.min_available_nodes = 1
        strategy.min_train_nodes = 1
        return MetricRecord({"accuracy": accuracy})
    strategy.start(grid, to_arrays(layout, federation.initial_model), num_rounds=rounds,
                   timeout=float(config["round-deadline"]), evaluate_fn=evaluate)
    with out.open("a") as file:
        file.write(json.dumps({"kind": "end"}) + "\\n")
'''


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--clients", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--deadline", type=float, default=20.0, help="seconds a round waits")
    arguments.add_argument("--breaks", type=float, default=0.3, help="links that break in a round")
    arguments.add_argument("--down", type=float, default=20.0, help="mean seconds they are broken")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--limit", type=float, default=400.0, help="seconds a strategy may take")
    arguments.add_argument("--delay", help="netem delay of every link, such as 50ms")
    arguments.add_argument("--loss", help="netem loss of every link, such as 1%%")
    arguments.add_argument("--save", action="store_true", help="write results/broken_network.txt")
    arguments.add_argument("--keep", type=Path, help="folder in which to leave logs and histories")
    options = arguments.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        sys.exit("Making network namespaces needs root and iproute2 (apt-get install iproute2).")
    with tempfile.TemporaryDirectory() as temporary, Record("broken_network", options.save) as to:
        folder = options.keep or Path(temporary)
        app = make_app(folder / "app", options.clients)

        def rows() -> Iterator[tuple[object, ...]]:
            for name, chosen in STRATEGIES.items():
                out = folder / name.replace(" ", "-").replace(",", "")
                shutil.rmtree(out, ignore_errors=True)
                yield name, *row(measure(out, app, chosen, options), options)

        title = f"{options.clients} clients, {options.rounds} rounds over links that break"
        to.table(title, COLUMNS, rows())


def make_app(folder: Path, clients: int) -> Path:
    """The example with a second server beside its own."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "fedhaw_app" / "peer.py").write_text(PEER)
    project = (folder / "pyproject.toml").read_text()
    project = project.replace("fedhaw_app.server:app", "fedhaw_app.peer:app")
    (folder / "pyproject.toml").write_text(project.replace('rule = ""', 'peer = ""\nrule = ""'))
    recipe = f'data = "mnist-5k"\nclients = {clients}\nalpha = 0.1\neta = 0.05\n'
    (folder / "recipe.toml").write_text(recipe)
    return folder


def measure(
    out: Path, app: Path, chosen: Mapping[str, str | int], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """One strategy's run over breaking links; its rounds, each with the links that were down."""
    out.mkdir(parents=True)
    with network(options) as names, processes(out) as start:
        hub, *nodes = names
        start(hub, "link", "flower-superlink", "--insecure", "--host", SERVER, "--port", str(PORT),
              "--disable-runtime-dependency-installation")  # fmt: skip
        time.sleep(5)
        for k, node in enumerate(nodes):
            start(node, f"node{k}", "flower-supernode", "--insecure", "--superlink",
                  f"{SERVER}:{PORT}", "--node-config", f"partition-id={k}")  # fmt: skip
        time.sleep(8)
        settings = {
            **chosen,
            "rounds": options.rounds,
            "out": str(out),
            "round-deadline": options.deadline,
        }
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
        start(hub, "run", "flwr", "run", str(app), "broken", "--stream", "-c", words)
        wait(lambda: read(out), options.limit)  # the first round is everybody's: links hold
        stop = threading.Event()
        down: dict[int, set[int]] = {}
        breaker = threading.Thread(target=break_links, args=(out, hub, options, stop, down))
        breaker.start()
        wait(lambda: any(r["kind"] == "end" for r in read(out)), options.limit)
        stop.set()
        breaker.join()
    rounds = [record for record in read(out) if record["kind"] == "round"]
    return [{**record, "down": down.get(index, set())} for index, record in enumerate(rounds)]


def break_links(
    out: Path,
    hub: str,
    options: argparse.Namespace,
    stop: threading.Event,
    down: dict[int, set[int]],
) -> None:
    """Break links as the schedule says, round by round, until told to stop.

    Args:
        out: where the history grows by a line a round.
        hub: the namespace of the bridge.
        options: the schedule's.
        stop: ends it.
        down: filled with the links that were down at some time in each round.
    """
    mended: list[tuple[float, int]] = []  # when each broken link is to be mended
    upcoming: list[tuple[float, int, float]] = []
    begun = 0
    while not stop.wait(0.1):
        now = time.monotonic()
        if len(read(out)) > begun:
            begun = len(read(out))
            upcoming = [(now + after, k, lasts) for k, after, lasts in schedule(begun, options)]
        for moment, k, lasts in [event for event in upcoming if event[0] <= now]:
            ip("-n", hub, "link", "set", f"port{k}", "down")
            mended = [(end, node) for end, node in mended if node != k] + [(now + lasts, k)]
            upcoming.remove((moment, k, lasts))
        for end, k in [event for event in mended if event[0] <= now]:
            ip("-n", hub, "link", "set", f"port{k}", "up")
            mended.remove((end, k))
        down.setdefault(begun, set()).update(k for _, k in mended)


def schedule(round_index: int, options: argparse.Namespace) -> list[tuple[int, float, float]]:
    """(node, seconds into the round, seconds) of every break of a round; the seed decides."""
    random = np.random.default_rng((options.seed, round_index))
    breaks, after = random.random(options.clients), random.uniform(0.5, 6.0, options.clients)
    lasts = random.exponential(options.down, options.clients)
    return [
        (k, float(after[k]), float(lasts[k]))
        for k in range(options.clients)
        if breaks[k] < options.breaks
    ]


@contextlib.contextmanager
def network(options: argparse.Namespace) -> Iterator[list[str]]:
    """Namespaces of our own: the hub with a bridge, and one for each node."""
    hub = f"fedhaw-{os.getpid()}"
    names = [hub, *(f"{hub}-{k}" for k in range(options.clients))]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "addr", "add", f"{SERVER}/24", "dev", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for k, name in enumerate(names[1:]):
            ip("-n", hub, "link", "add", f"port{k}", "type", "veth", "peer", "name", "eth",
               "netns", name)  # fmt: skip
            ip("-n", hub, "link", "set", f"port{k}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{10 + k}/24", "dev", "eth")
            ip("-n", name, "link", "set", "eth", "up")
            netem(name, options)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def netem(name: str, options: argparse.Namespace) -> None:
    chosen = {"delay": options.delay, "loss": options.loss}
    words = [word for key, value in chosen.items() if value for word in (key, value)]
    if words:
        command = ["tc", "-n", name, "qdisc", "add", "dev", "eth", "root", "netem", *words]
        if subprocess.run(command, capture_output=True).returncode:
            sys.exit("This kernel has no netem; leave out --delay and --loss.")


@contextlib.contextmanager
def processes(out: Path) -> Iterator[Any]:
    """A function that starts a process in a namespace; all are gone afterwards."""
    home = out / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.broken]\naddress = "{SERVER}:{PORT}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
    }
    started: list[str] = []

    def start(namespace: str, name: str, *command: str) -> None:
        with (out / f"{name}.log").open("wb") as log:
            subprocess.Popen(
                ["ip", "netns", "exec", namespace, str(BIN / command[0]), *command[1:]],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=out,
                start_new_session=True,
            )  # fmt: skip
        started.append(namespace)

    try:
        yield start
    finally:
        for namespace in set(started):
            found = subprocess.run(
                ["ip", "netns", "pids", namespace], capture_output=True, text=True
            )
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def read(out: Path) -> list[dict[str, Any]]:
    file = out / "history.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [record for record in map(json.loads, lines) if record["kind"] != "run"]


def wait(condition: Any, limit: float) -> None:
    end = time.monotonic() + limit
    while not condition() and time.monotonic() < end:
        time.sleep(0.5)


def row(rounds: list[dict[str, Any]], options: argparse.Namespace) -> tuple[object, ...]:
    """The cells of COLUMNS."""
    lost = {"link": 0, "after": 0, "load": 0}
    disturbed: set[int] = set()  # by a break in the round before, or still spared because of one
    for record in rounds:
        causes = {
            k: "link" if k in record["down"] else "after" if k in disturbed else "load"
            for k in map(int, record["lost"])
        }
        for cause in causes.values():
            lost[cause] += 1
        disturbed = record["down"] | {k for k, cause in causes.items() if cause != "load"}
    late = sum(str(record).count(LATE) for record in rounds)
    seconds = [record["seconds"]["train"] for record in rounds]
    stalled = sum(s >= options.deadline for s in seconds)
    accuracy = " ".join(f"{100 * record['evaluation']['accuracy']:.0f}" for record in rounds)
    by_round = " ".join(str(len(record["lost"])) for record in rounds)
    calm = [s for s, r in zip(seconds, rounds, strict=True) if not (r["down"] or r["lost"])]
    return (
        len(rounds), accuracy, by_round, lost["link"], lost["after"], lost["load"],
        late, f"{sum(seconds):.0f}", stalled, " ".join(f"{s:.0f}" for s in calm),
    )  # fmt: skip


if __name__ == "__main__":
    main()

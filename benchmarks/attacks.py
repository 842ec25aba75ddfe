"""What lying clients cost a Flower federation of ten.

    python benchmarks/attacks.py [--only TEXT] [--strategies "fedhaw default,..."] [--seeds 0,1,2]
        [--beside 0] [--rounds 20] [--begin 8] [--jobs 1] [--deployed] [--save]

An MLP on mnist-5k (D_alpha 1, SGD 0.05, three epochs), ten clients, real training and real
strategies; client 2, with 13 % of the data at seed 0, lies from round 8 of 20 on, or several do.
Clients stand behind a grid in memory, or with `--deployed` each is a SuperNode of its own at a
SuperLink on loopback. What is of fedhaw runs with its default settings.

A cell shows the accuracy at the end in %, mean over the seeds, and what the lie costs beside the
run of the same strategy and seed in which nobody lies: at the end, and at the worst moment after it
began, both of the worst seed. `?` stands for a run that ended with an error. The default runs with
all seeds, what stands beside it with those of `--beside`. What the clients learn before the first
lie is the same for all attacks and learnt once.
"""

import argparse
import contextlib
import copy
import hashlib
import importlib.util
import itertools
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, MultiKrum
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray
from record import Record

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.flower.client import Participant, client_app, to_arrays, to_vector
from fedhaw.models import Evaluator
from fedhaw.settings import fill
from fedhaw.simulation import Federation

ROUNDS, BEGIN = 20, 8
ONE, TWO, THREE = (2,), (2, 5), (2, 5, 8)

Lie = Callable[[int, Message, Message], Message | None]
"""What a liar makes of the rounds since lies began, below 0 before, the question and its honest
answer; None for silence."""

Outcome = list[float] | str
"""The accuracies of a run in %, or the error with which it ended."""

Change = Callable[[int, NDArray[Any], NDArray[Any]], NDArray[Any]]
"""What a liar sends in place of an array, from the rounds since lies began, what it was sent and
what it has learnt."""


def changed(change: Change, examples: float | None = None) -> Lie:
    """A lie about the model, and maybe about the data behind it."""

    def lie(since: int, question: Message, answer: Message) -> Message:
        sent, own = (m.content.array_records["arrays"] for m in (question, answer))
        for name, array in list(own.items()):
            w = sent[name].numpy()
            own[name] = Array(np.asarray(change(since, w, array.numpy()), dtype=w.dtype))
        if examples is not None:
            answer.content.metric_records["metrics"]["num-examples"] = examples
        return answer

    return lie


def times(factor: Callable[[int], float] | float, examples: float | None = None) -> Lie:
    """The update times a factor, which may change with the rounds."""
    of_round = factor if callable(factor) else lambda since: factor

    def stretched(since: int, w: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
        stretch: NDArray[Any] = w + np.float32(of_round(since)) * (own - w)
        return stretch

    return changed(stretched, examples)


def then_silent(lie: Lie) -> Lie:
    """A lie once, and no answer ever after."""
    return lambda since, question, answer: None if since else lie(since, question, answer)


def noise(since: int, w: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    """A random update, five times as long as the honest one."""
    drawn = np.random.default_rng(since).standard_normal(w.shape)
    made: NDArray[Any] = w + 5 * drawn * np.linalg.norm(own - w) / np.linalg.norm(drawn)
    return made


def filled(since: int, w: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    """Every number 1e17, once."""
    return np.full_like(own, 1e17) if since == 0 else own


def old_model() -> Lie:
    """The first model it was ever asked to lie about, sent back again and again."""
    first: dict[int, ArrayRecord] = {}

    def lie(since: int, question: Message, answer: Message) -> Message:
        answer.content["arrays"] = first.setdefault(0, question.content.array_records["arrays"])
        return answer

    return lie


def honest(since: int, question: Message, answer: Message) -> Message:
    """No lie about the model; its labels may be wrong."""
    return answer


@dataclass(frozen=True)
class Attack:
    """Who lies, and how.

    Attributes:
        liars: the clients.
        lie: what they make of their answers.
        flips: whether they train on flipped labels.
        from_the_start: whether they lie from the first round on.
    """

    liars: tuple[int, ...] = ()
    lie: Lie = honest
    flips: bool = False
    from_the_start: bool = False


def boaster(factor: float) -> Attack:
    """A client that says it has far more data than anybody, behaves, and turns later."""
    turning = times(lambda since: 1 if since < 0 else factor, 1e12)
    return Attack(ONE, turning, from_the_start=True)


ATTACKS = {
    "nobody": Attack(),
    "times -1": Attack(ONE, times(-1)),
    "times -3": Attack(ONE, times(-3)),
    "times -5": Attack(ONE, times(-5)),
    "times -10": Attack(ONE, times(-10)),
    "times 4": Attack(ONE, times(4)),
    "times 9": Attack(ONE, times(9)),
    "times 1e6 once": Attack(ONE, times(lambda since: 1 if since else 1e6)),
    "times 100 once, then silence": Attack(ONE, then_silent(times(100))),
    "all 1e17 once": Attack(ONE, changed(filled)),
    "times -1, growing by a third": Attack(ONE, times(lambda since: -(1.33**since))),
    "times 4 and -4 in turn": Attack(ONE, times(lambda since: 4 * (-1) ** since)),
    "noise, five times as long": Attack(ONE, changed(noise)),
    "an old model": Attack(ONE, old_model()),
    "1e12 examples, no update": Attack(ONE, times(0, 1e12), from_the_start=True),
    **{f"1e12 examples, times {factor} later": boaster(factor) for factor in (-1, -2, -9, 4)},
    "1e12 examples, times -1": Attack(ONE, times(-1, 1e12)),
    "1e12 examples, times -10": Attack(ONE, times(-10, 1e12)),
    "flipped labels": Attack(ONE, flips=True),
    "two: times -1": Attack(TWO, times(-1)),
    "two: times -3": Attack(TWO, times(-3)),
    "three: times -1": Attack(THREE, times(-1)),
    "three: times -3": Attack(THREE, times(-3)),
    "three: flipped labels": Attack(THREE, flips=True),
}
DEPLOYED = ("nobody", "times -10", "all 1e17 once", "1e12 examples, no update")
"""What is tried with `--deployed` unless `--only` says otherwise: a run takes minutes there."""

COMMON: dict[str, Any] = {"min_train_nodes": 2, "min_available_nodes": 2, "fraction_evaluate": 0.0}
DEFAULT = "fedhaw default"
SHOWN = (DEFAULT, "fedhaw FedAvg", "fedhaw trimmed mean", "Flower FedAvg", "Flower MultiKrum")
STRATEGIES: dict[str, Callable[[], Any]] = {
    DEFAULT: lambda: RuleStrategy(**COMMON),
    "fedhaw FedAvg": lambda: RuleStrategy(fedhaw.FedAvg(), **COMMON),
    "fedhaw FedHAW": lambda: RuleStrategy(fedhaw.FedHAW(0.1, 1e-3, 1e-2), **COMMON),
    "fedhaw trimmed mean": lambda: RuleStrategy(fedhaw.TrimmedMean(), **COMMON),
    "Flower FedAvg": lambda: FedAvg(**COMMON),
    "Flower FedMedian": lambda: FedMedian(**COMMON),
    "Flower FedTrimmedAvg": lambda: FedTrimmedAvg(**COMMON),
    "Flower MultiKrum": lambda: MultiKrum(**COMMON, num_malicious_nodes=1, num_nodes_to_select=9),
}


LEARNT: dict[tuple[int, int, int, str], list[RecordDict]] = {}
"""Honest answers of the rounds before any lie, by seed, client, round and the model sent."""


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        strategy: its name.
        attack: its name.
        seed: of the federation.
        rounds: how many.
        begin: the round in which the lies begin.
    """

    strategy: str
    attack: str
    seed: int = 0
    rounds: int = ROUNDS
    begin: int = BEGIN

    @property
    def federation(self) -> Federation:
        """The clients, their data and the model."""
        return federation(self.seed)

    def participant(self, client: int, flipped: bool) -> Participant:
        """A client with its data."""
        x, y = self.federation.training_samples()
        rows = self.federation.holdings.rows_of(client)
        return Participant(
            client=client,
            module=self.federation.module,
            client_update=self.federation.client_update,
            x=x[rows],
            y=9 - y[rows] if flipped else y[rows],
            seed=self.seed,
        )

    def answer(self, client: int, question: Message, context: Context) -> Message | None:
        """What a client answers, be it honest or not."""
        attack = ATTACKS[self.attack]
        now = int(str(question.content.config_records["config"]["server-round"]))
        since = now - self.begin
        lies = client in attack.liars and (attack.from_the_start or since >= 0)
        if now < self.begin and not lies:
            return self.before_any_lie(client, now, question, context)
        app = client_app(lambda context: self.participant(client, lies and attack.flips))
        answer = app(question, context)
        return attack.lie(since, question, answer) if lies else answer

    def before_any_lie(self, client: int, now: int, question: Message, context: Context) -> Message:
        """What a client answers while all are honest, learnt once for all attacks."""
        arrays = question.content.array_records["arrays"]
        sent = hashlib.sha256(b"".join(array.data for array in arrays.values())).hexdigest()
        known = LEARNT.setdefault((self.seed, client, now, sent), [])
        if not known:
            app = client_app(lambda context: self.participant(client, flipped=False))
            known.append(app(question, context).content)
        return Message(copy.deepcopy(known[0]), reply_to=question)

    def serve(self, grid: Grid, timeout: float) -> list[float]:
        """The accuracies in %, from that of the first model on."""
        layout, ((x,), y) = (
            self.federation.layout,
            (self.federation.x_test.values(), self.federation.y_test),
        )
        evaluate = Evaluator(self.federation.module, layout)
        seen: list[float] = []

        def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
            found = evaluate(to_vector(layout, arrays), x, y)["accuracy"]
            seen.append(100 * found if math.isfinite(found) else 0.0)
            return MetricRecord({"accuracy": found})

        STRATEGIES[self.strategy]().start(
            grid,
            to_arrays(layout, self.federation.initial_model),
            num_rounds=self.rounds,
            timeout=timeout,
            evaluate_fn=accuracy,
        )
        return seen


@cache
def federation(seed: int) -> Federation:
    """Ten clients, their data and the model."""
    settings = {"data": "mnist-5k", "alpha": 1.0, "eta": 0.05, "epochs": 3, "seed": seed}
    return Federation.prepare(fill(settings))


class Clients(Grid):
    """A grid in memory: every node trains, and some lie about it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._replies: dict[str, Message] = {}
        self._ids = itertools.count(1)
        self._context = Context(1, 1, {}, RecordDict(), {})

    def set_run(self, run: Any) -> None:
        """Nothing: there is one run."""

    @property
    def run(self) -> Any:
        """Nobody asks."""
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Nobody asks."""
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        """A node a client."""
        return [100 + k for k in range(self._trial.federation.clients)]

    def get_nodes(self) -> list[Any]:
        """The same, as Flower lists them."""
        return [SimpleNamespace(node_id=node, name="") for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Every node answers at once, or never."""
        ids = []
        for message in messages:
            ids.append(f"m{next(self._ids)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            client = message.metadata.dst_node_id - 100
            reply = self._trial.answer(client, message, self._context)
            if reply is not None:
                self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """What is there."""
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Flower's own way."""
        return self.pull_messages(self.push_messages(list(messages)))


def in_memory(trial: Trial) -> list[float]:
    """The accuracies of a run without a network."""
    return trial.serve(Clients(trial), timeout=0.05)


APP = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "attacks"
version = "1.0.0"
description = "Clients that lie."
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["liars"]
[tool.flwr.app]
publisher = "fedhaw"
[tool.flwr.app.components]
serverapp = "liars.apps:server"
clientapp = "liars.apps:client"
[tool.flwr.app.config]
trial = ""
out = ""
"""


def client_of_a_node() -> ClientApp:
    """A client that asks its node's configuration who it is."""
    app = ClientApp()

    @app.train()
    def train(question: Message, context: Context) -> Message:
        trial = Trial(**json.loads(str(context.run_config["trial"])))
        answer = trial.answer(int(context.node_config["partition-id"]), question, context)
        if answer is None:
            raise SystemExit("silent")
        return answer

    return app


def server_of_a_run() -> ServerApp:
    """A server that leaves the accuracies in a file."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        trial = Trial(**json.loads(str(context.run_config["trial"])))
        seen = trial.serve(grid, timeout=120)
        file = Path(str(context.run_config["out"]))
        file.with_suffix(".part").write_text(json.dumps(seen))
        file.with_suffix(".part").rename(file)

    return app


class Deployed:
    """A SuperLink and ten SuperNodes on loopback, for one run after the other."""

    def __init__(self, folder: Path) -> None:
        source = Path(__file__).parents[1] / "tests" / "system" / "flower_processes.py"
        spec = importlib.util.spec_from_file_location("flower_processes", source)
        assert spec is not None
        assert spec.loader is not None
        flower = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(flower)
        here = str(Path(__file__).parent)
        os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        self.app = folder / "app"
        (self.app / "liars").mkdir(parents=True)
        (self.app / "pyproject.toml").write_text(APP)
        (self.app / "liars" / "__init__.py").write_text("")
        (self.app / "liars" / "apps.py").write_text(
            "import attacks\n\n"
            "server = attacks.server_of_a_run()\n"
            "client = attacks.client_of_a_node()\n"
        )
        self.network = flower.Deployment(folder / "network")
        self.network.start_link()
        for k in range(federation(0).clients):
            self.network.start_node(k)

    def __call__(self, trial: Trial) -> list[float]:
        """The accuracies of a run over the network."""
        out = self.network.folder / f"{trial.strategy}, {trial.attack}.json"
        self.network.run(self.app, trial=json.dumps(asdict(trial)), out=out)
        self.network.wait_for(out.exists, "the run", 120.0 * trial.rounds)
        seen: list[float] = json.loads(out.read_text())
        return seen


def in_lanes(lanes: Sequence[Sequence[Trial]], jobs: int) -> dict[Trial, Outcome]:
    """The accuracies of all trials, those of a lane in one process: they share what was learnt."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        played = pool.map(play_lane, lanes)
        return {
            trial: outcome
            for lane, outcomes in zip(lanes, played, strict=True)
            for trial, outcome in zip(lane, outcomes, strict=True)
        }


def play_lane(lane: Sequence[Trial]) -> list[Outcome]:
    """What became of trials one after the other, in memory."""
    prepare()
    return [outcome_of(in_memory, trial) for trial in lane]


def outcome_of(play: Callable[[Trial], list[float]], trial: Trial) -> Outcome:
    """The accuracies of a trial, or the error with which it ended."""
    try:
        return play(trial)
    except Exception as error:  # a strategy of Flower's may end in any
        return f"{trial.strategy}, {trial.attack}: {type(error).__name__}: {str(error)[:100]}"


def prepare() -> None:
    """A process in which strategies can run, quietly and on one core."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", default="", help="attacks with this text in their name")
    arguments.add_argument("--strategies", default=",".join(SHOWN), help=", ".join(STRATEGIES))
    arguments.add_argument("--seeds", default="0,1,2", help="of the default")
    arguments.add_argument("--beside", default="0", help="the seeds of the others")
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--begin", type=int, default=BEGIN, help="the round of the first lie")
    arguments.add_argument("--jobs", type=int, default=1, help="how many runs at a time")
    arguments.add_argument("--deployed", action="store_true", help="over a real SuperLink")
    arguments.add_argument("--save", action="store_true", help="write results/attacks.txt")
    options = arguments.parse_args()
    strategies = options.strategies.split(",")
    usual = DEPLOYED if options.deployed and not options.only else ATTACKS
    attacks = ["nobody", *(a for a in usual if options.only in a and a != "nobody")]
    of_default, of_others = (
        [*map(int, seeds.split(","))] for seeds in (options.seeds, options.beside)
    )

    def trials(strategy: str, attack: str) -> list[Trial]:
        seeds = of_default if strategy == DEFAULT else of_others
        return [Trial(strategy, attack, seed, options.rounds, options.begin) for seed in seeds]

    with Record("attacks_deployed" if options.deployed else "attacks", options.save) as record:
        if options.deployed:
            prepare()
            with deployment() as play:
                every = (t for s in strategies for a in attacks for t in trials(s, a))
                outcomes = {trial: outcome_of(play, trial) for trial in every}
        else:
            lanes = [
                [Trial(strategy, attack, of_seed.seed, options.rounds, options.begin)
                 for attack in attacks]
                for strategy in strategies
                for of_seed in trials(strategy, "nobody")
            ]  # fmt: skip
            outcomes = in_lanes(lanes, options.jobs)

        def shown(strategy: str, attack: str) -> str:
            played = [[outcomes[t] for t in trials(strategy, a)] for a in (attack, "nobody")]
            errors = [run for runs in played for run in runs if isinstance(run, str)]
            print(*errors, sep="\n", end="\n" if errors else "")
            runs, clean = ([run for run in runs if isinstance(run, list)] for runs in played)
            return "?" if errors else cell(runs, clean, options.begin, attack == "nobody")

        record.table(
            "Accuracy at the end in %, and what the lie cost there and on the way; the default "
            f"with {len(of_default)} seeds, the others with {len(of_others)}",
            ("attack", *strategies),
            ((attack, *(shown(strategy, attack) for strategy in strategies)) for attack in attacks),
        )


@contextlib.contextmanager
def deployment() -> Iterator[Callable[[Trial], list[float]]]:
    """A SuperLink with its SuperNodes, which are gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        deployed = Deployed(Path(folder))
        try:
            yield deployed
        finally:
            deployed.network.stop()


def cell(runs: list[list[float]], clean: list[list[float]], begin: int, honest: bool) -> str:
    """The mean accuracy at the end, and the most that the lie costs, there and on the way."""
    costs = [np.subtract(before, run) for run, before in zip(runs, clean, strict=True)]
    end = f"{np.mean([run[-1] for run in runs]):.0f}"
    if honest:
        return end
    last, deepest = max(c[-1] for c in costs), max(c[begin:].max() for c in costs)
    return f"{end} ({-last:+.0f}, {-deepest:+.0f})"


if __name__ == "__main__":
    main()

"""What one lying client of ten costs a Flower federation, and three that lie together.

    python benchmarks/attacks.py [--only TEXT] [--strategies "fedhaw default,..."] [--save]

An MLP on mnist-5k (D_alpha 1, SGD 0.05, three epochs), ten clients behind a grid in memory, real
training and real strategies, 20 rounds; client 2, with 13 % of the data, lies from round 8 on, or
clients 2, 5 and 8. A cell shows the accuracy in % before the attack, the lowest after it began, and
at the end; `?` stands for a run that ended with an error. What is of fedhaw runs with its default
settings.
"""

import argparse
import itertools
import logging
import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, MultiKrum
from flwr.supercore.task_identity import TaskIdentity
from record import Record

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.flower.client import Participant, client_app, to_arrays, to_vector
from fedhaw.models import Evaluator
from fedhaw.settings import fill
from fedhaw.simulation import Federation

ROUNDS, BEGIN = 20, 8
ONE, THREE = (2,), (2, 5, 8)

Lie = Callable[[int, Message, Message], Message | None]
"""What a liar makes of the round, the question and its honest answer; None for silence."""


def times(factor: float, once: bool = False, silent_after: bool = False) -> Lie:
    """The update times a factor."""

    def lie(server_round: int, question: Message, answer: Message) -> Message | None:
        if server_round > BEGIN and (once or silent_after):
            return None if silent_after else answer
        sent, own = (m.content.array_records["arrays"] for m in (question, answer))
        for name, array in list(own.items()):
            w = sent[name].numpy()
            own[name] = Array((w + np.float32(factor) * (array.numpy() - w)).astype(w.dtype))
        return answer

    return lie


def filled(value: float) -> Lie:
    """Every number of the model the same, once."""

    def lie(server_round: int, question: Message, answer: Message) -> Message:
        own = answer.content.array_records["arrays"]
        for name, array in list(own.items() if server_round == BEGIN else ()):
            own[name] = Array(np.full_like(array.numpy(), value))
        return answer

    return lie


def boasting(examples: float) -> Lie:
    """A huge number of examples behind a model that is the sent one, so that nothing moves."""

    def lie(server_round: int, question: Message, answer: Message) -> Message:
        answer.content.metric_records["metrics"]["num-examples"] = examples
        answer.content["arrays"] = question.content.array_records["arrays"]
        return answer

    return lie


def honest(server_round: int, question: Message, answer: Message) -> Message:
    """No lie about the model; its labels may be wrong."""
    return answer


# Who lies, from which round, how, and whether its labels are flipped.
ATTACKS: dict[str, tuple[tuple[int, ...], int, Lie, bool]] = {
    "nobody": ((), BEGIN, honest, False),
    "times -1": (ONE, BEGIN, times(-1), False),
    "times -10": (ONE, BEGIN, times(-10), False),
    "times 9": (ONE, BEGIN, times(9), False),
    "times 1e6 once": (ONE, BEGIN, times(1e6, once=True), False),
    "times 100 once, then silence": (ONE, BEGIN, times(100, silent_after=True), False),
    "all 1e17 once": (ONE, BEGIN, filled(1e17), False),
    "1e12 examples, from round 1": (ONE, 1, boasting(1e12), False),
    "flipped labels": (ONE, BEGIN, honest, True),
    "three: times -1": (THREE, BEGIN, times(-1), False),
    "three: times -3": (THREE, BEGIN, times(-3), False),
    "three: flipped labels": (THREE, BEGIN, honest, True),
}

COMMON: dict[str, Any] = {"min_train_nodes": 2, "min_available_nodes": 2, "fraction_evaluate": 0.0}
STRATEGIES: dict[str, Callable[[], Any]] = {
    "fedhaw default": lambda: RuleStrategy(**COMMON, round_deadline=0.05),
    "fedhaw FedAvg": lambda: RuleStrategy(fedhaw.FedAvg(), **COMMON, round_deadline=0.05),
    "fedhaw FedHAW": lambda: RuleStrategy(
        fedhaw.FedHAW(0.1, 1e-3, 1e-2), **COMMON, round_deadline=0.05
    ),
    "fedhaw trimmed mean": lambda: RuleStrategy(
        fedhaw.TrimmedMean(), **COMMON, round_deadline=0.05
    ),
    "Flower FedAvg": lambda: FedAvg(**COMMON),
    "Flower FedMedian": lambda: FedMedian(**COMMON),
    "Flower FedTrimmedAvg": lambda: FedTrimmedAvg(**COMMON),
    "Flower MultiKrum": lambda: MultiKrum(**COMMON, num_malicious_nodes=1, num_nodes_to_select=9),
}


def same(who: Participant, context: Context) -> Participant:
    """The participant, whatever the node."""
    return who


@cache
def federation() -> Federation:
    """The clients, their data and the model."""
    return Federation.prepare(fill({"data": "mnist-5k", "alpha": 1.0, "eta": 0.05, "epochs": 3}))


class Clients(Grid):
    """A grid in memory: every node trains, and some lie about it."""

    def __init__(self, attack: str) -> None:
        self.liars, self.begin, self.lie, self.flips = ATTACKS[attack]
        self._replies: dict[str, Message] = {}
        self._ids = itertools.count(1)
        self._context = Context(1, 1, {}, RecordDict(), {})
        x, y = federation().training_samples()
        self._apps = {}
        for k in range(federation().clients):
            rows = federation().holdings.rows_of(k)
            for flipped in (False, True):
                labels = 9 - y[rows] if flipped else y[rows]
                who = Participant(
                    client=k,
                    module=federation().module,
                    client_update=federation().client_update,
                    x=x[rows],
                    y=labels,
                )
                self._apps[k, flipped] = client_app(partial(same, who))

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
        return [100 + k for k in range(federation().clients)]

    def get_nodes(self) -> list[Any]:
        """The same, as Flower lists them."""
        return [SimpleNamespace(node_id=node, name="") for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Every node answers at once, or never."""
        ids = []
        for message in messages:
            ids.append(f"m{next(self._ids)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            reply = self._answer(message)
            if reply is not None:
                self._replies[ids[-1]] = reply
        return ids

    def _answer(self, message: Message) -> Message | None:
        k = message.metadata.dst_node_id - 100
        config = message.content.config_records["config"]
        server_round = int(str(config["server-round"]))
        lies = k in self.liars and server_round >= self.begin
        answer = self._apps[k, lies and self.flips](message, self._context)
        return self.lie(server_round, message, answer) if lies else answer

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """What is there."""
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Flower's own way."""
        return self.pull_messages(self.push_messages(list(messages)))


def play(strategy: str, attack: str) -> str:
    """One run: accuracy before, lowest after, at the end."""
    whole = federation()
    (x,), y = whole.x_test.values(), whole.y_test
    evaluate, layout = Evaluator(whole.module, whole.layout), whole.layout
    seen: list[float] = []

    def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        found = evaluate(to_vector(layout, arrays), x, y)["accuracy"]
        seen.append(100 * found if math.isfinite(found) else 0.0)
        return MetricRecord({"accuracy": found})

    try:
        STRATEGIES[strategy]().start(
            Clients(attack),
            to_arrays(layout, whole.initial_model),
            num_rounds=ROUNDS,
            evaluate_fn=accuracy,
        )
    except Exception as error:  # a strategy of Flower's may end in any
        print(f"{strategy}, {attack}: {type(error).__name__}: {str(error)[:100]}")
        return "?"
    begin = ATTACKS[attack][1]
    before = f"{seen[begin - 1]:.0f}" if begin > 1 else "-"
    return f"{before} / {min(seen[BEGIN:]):.0f} / {seen[-1]:.0f}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", default="", help="attacks with this text in their name")
    arguments.add_argument("--strategies", default=",".join(STRATEGIES))
    arguments.add_argument("--save", action="store_true", help="write results/attacks.txt")
    options = arguments.parse_args()
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    strategies = options.strategies.split(",")
    with Record("attacks", options.save) as record:
        chosen = [attack for attack in ATTACKS if options.only in attack]
        record.table(
            "Accuracy in %: before, lowest, at the end",
            ("attack", *strategies),
            ((attack, *(play(strategy, attack) for strategy in strategies)) for attack in chosen),
        )


if __name__ == "__main__":
    main()

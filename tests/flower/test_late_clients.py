"""A reply that comes after its deadline: used a round or more later, and it says so."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.late import FADE
from fedhaw.rules import Round


class Slow:
    """A grid one of whose nodes answers so many rounds after it was asked."""

    def __init__(self, flower: SimpleNamespace, node: int, delay: int, **clients: Any) -> None:
        self.grid = flower.Grid({n: flower.moving(str(n), 0.1 * n) for n in range(1, 5)})
        self.node, self.delay, self.asked = node, delay, [0]
        self._waiting: list[tuple[int, str, Message]] = []
        answer, pull, push = (
            self.grid.clients[node],
            self.grid.pull_messages,
            self.grid.push_messages,
        )
        self.grid.clients[node] = lambda message: None

        def push_messages(messages: Any) -> Any:
            messages = list(messages)
            ids = push(messages)
            now = max(int(str(m.content["config"]["server-round"])) for m in messages)
            for message_id, message in zip(ids, messages, strict=True):
                if message.metadata.dst_node_id == node:
                    self.asked.append(now)
                    self._waiting.append((now + delay, message_id, answer(message)))
            for due, message_id, reply in list(self._waiting):
                if due <= now:
                    self.grid._replies[message_id] = reply
                    self._waiting.remove((due, message_id, reply))
            return ids

        self.grid.push_messages, self.grid.pull_messages = push_messages, pull


def strategy(**more: Any) -> RuleStrategy:
    return RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, round_deadline=0.05, **more)


def bias(result: Any) -> float:
    return float(result.arrays["a.bias"].numpy().astype(float).mean())


def test_it_counts_a_round_later_and_fades(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    slow, server = Slow(flower, node=4, delay=1), strategy()
    result = server.start(slow.grid, arrays, num_rounds=3)
    # Its first upload is lost, and nobody knows its weight: the others have a third each.
    first = (0.1 + 0.2 + 0.3) / 3
    # Then it is spared, and its update of round 1 arrives.
    second = (0.1 + 0.2 + 0.3 + FADE * 0.4) / 4
    # Then it is asked again, and late again.
    third = (0.1 + 0.2 + 0.3) / 4
    start = float(arrays["a.bias"].numpy().astype(float).mean())
    assert bias(result) - start == pytest.approx(first + second + third, rel=1e-5)
    assert server.reports[0].lost.keys() == {"node 4"}
    assert server.reports[1].lost == {}
    said = f"client 4: its update of round 1 came late and counts {FADE:.2g}"
    assert server.reports[1].note == said
    assert [result.train_metrics_clientapp[t]["clients-late"] for t in (1, 2, 3)] == [0, 1, 0]


def test_a_delay_of_many_rounds_is_too_late(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    for rounds, taken in ((2, 0), (5, 1)):
        slow, server = Slow(flower, node=4, delay=3), strategy(late_rounds=rounds)
        result = server.start(slow.grid, arrays, num_rounds=4)
        late = [result.train_metrics_clientapp[t]["clients-late"] for t in range(1, 5)]
        assert late.count(1) == taken


def test_the_rule_is_told_of_it(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    seen = []

    class Watching(fedhaw.FedAvg):
        def aggregate(self, state: Any, current: Round) -> Any:
            seen.append([current.clients[k] for k in np.flatnonzero(current.late)])
            return super().aggregate(state, current)

    server = RuleStrategy(Watching(), fraction_evaluate=0.0, round_deadline=0.05)
    server.start(Slow(flower, node=4, delay=1).grid, arrays, num_rounds=3)
    assert seen == [[], ["4"], []]


def test_it_can_be_turned_off(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    slow, server = Slow(flower, node=4, delay=1), strategy(late_rounds=0)
    server.start(slow.grid, arrays, num_rounds=3)
    assert all("node 4" in report.lost for report in server.reports)


def test_an_update_is_measured_from_the_model_that_was_sent(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    """However far the others have gone since, a late update is not absurdly long for it."""
    slow = Slow(flower, node=4, delay=1)
    for n in (1, 2, 3):
        slow.grid.clients[n] = flower.moving(str(n), 100.0)
    server = strategy()
    server.start(slow.grid, arrays, num_rounds=2)
    assert server.reports[1].lost == {}


@pytest.mark.parametrize("damaged", [False, True])
def test_the_present_round_goes_before_an_earlier_one(
    flower: SimpleNamespace, arrays: ArrayRecord, damaged: bool
) -> None:
    """Answers to both questions arrive in round 3: the fresh one is taken."""
    slow = Slow(flower, node=4, delay=2)
    server = strategy()
    begin, push = flower.moving("4", 0.4), slow.grid.push_messages

    def prompt(messages: Any) -> Any:
        messages = list(messages)
        if int(str(messages[0].content["config"]["server-round"])) == 3:
            slow.grid.clients[4] = begin
            for _, _, late in slow._waiting if damaged else []:
                late.content["metrics"] = MetricRecord({})
        return push(messages)

    slow.grid.push_messages = prompt
    result = server.start(slow.grid, arrays, num_rounds=3)
    assert result.train_metrics_clientapp[3]["clients-late"] == 0
    assert server.reports[2].lost == {}


def test_a_late_node_that_was_not_drawn_takes_part_and_is_not_missed(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    slow = Slow(flower, node=4, delay=1)
    server = strategy(fraction_train=0.5, seed=3)
    result = server.start(slow.grid, arrays, num_rounds=12)
    asked = [t for t in slow.asked if t]
    assert asked
    for t in asked:
        if t < 12:
            assert result.train_metrics_clientapp[t + 1]["clients-late"] == 1
            assert "4" in server.cohorts[t]
    assert all(result.train_metrics_clientapp[t]["clients-asked"] == 2 for t in range(1, 13))


def test_a_late_lie_is_refused_like_any_other(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    slow = Slow(flower, node=4, delay=1)
    waiting = slow._waiting

    def lie(messages: Any, push: Any = slow.grid.push_messages) -> Any:
        ids = push(messages)
        for _, _, reply in waiting:
            record = reply.content.array_records["arrays"]
            for name, array in list(record.items()):
                values = array.numpy()
                if values.dtype.kind == "f":
                    record[name] = Array(values + np.float32(1e17))
        return ids

    slow.grid.push_messages = lie
    server = strategy()
    server.start(slow.grid, arrays, num_rounds=2)
    assert "times as long as usual" in server.reports[1].lost["4"]

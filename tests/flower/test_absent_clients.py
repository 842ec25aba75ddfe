"""A client that once took part and is in no list any more: absent, counted and named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ArrayRecord

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.rules import Rule

FEDAVG = fedhaw.FedAvg()


def run(
    flower: SimpleNamespace,
    arrays: ArrayRecord,
    gone: dict[int, set[int]],
    rule: Rule[Any] = FEDAVG,
    **settings: Any,
) -> tuple[RuleStrategy, Any]:
    """Four clients; `gone` says which nodes Flower no longer lists after a round."""
    nodes = {k: flower.moving(k, 0.1) for k in range(4)}
    grid = flower.Grid(dict(nodes))

    def leave(server_round: int, arrays: ArrayRecord) -> None:
        if server_round in gone:
            grid.clients = {k: v for k, v in nodes.items() if k not in gone[server_round]}

    strategy = RuleStrategy(rule, fraction_evaluate=0.0, **settings)
    return strategy, strategy.start(grid, arrays, num_rounds=9, evaluate_fn=leave)


def test_it_is_lost_in_every_round_until_it_returns(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    strategy, result = run(flower, arrays, {2: {3}, 8: set()})
    lost = [record.lost for record in strategy.reports]
    assert lost == [{}] * 2 + [{"3": "absent, last heard in round 2"}] * 6 + [{}]
    assert all(record.weights["3"] == pytest.approx(0.25) for record in strategy.reports)
    absent = [result.train_metrics_clientapp[t]["clients-absent"] for t in range(1, 10)]
    assert absent == [0, 0, 1, 1, 1, 1, 1, 1, 0]


def test_its_last_update_is_replayed_as_the_rule_says(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    strategy, _ = run(flower, arrays, {7: {3}}, fedhaw.FedHAWAuto())
    assert strategy.state.absent == ("3",)
    assert strategy.reports[-1].weights["3"] == pytest.approx(0.25)
    forgetful, _ = run(flower, arrays, {2: {3}}, fedhaw.FedHAWAuto(), forget_after=3)
    assert forgetful.state.absent == ()


def test_it_is_forgotten_in_the_end(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    strategy, _ = run(flower, arrays, {2: {3}}, forget_after=3)
    assert [len(cohort) for cohort in strategy.cohorts] == [4, 4, 4, 4, 4, 3, 3, 3, 3]


def test_a_server_that_goes_on_knows_who_is_missing(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
) -> None:
    def strategy(nodes_timeout: float = 600) -> RuleStrategy:
        checkpoint = tmp_path / "c.safetensors"
        return RuleStrategy(fedhaw.FedAvg(), checkpoint=checkpoint, nodes_timeout=nodes_timeout)

    nodes = {k: flower.moving(k, 0.1) for k in range(4)}
    strategy().start(flower.Grid(nodes), arrays, num_rounds=2)
    again = strategy(nodes_timeout=0.05)
    again.start(flower.Grid({k: nodes[k] for k in range(3)}), arrays, num_rounds=3)
    assert again.reports[-1].lost == {"3": "absent, last heard in round 2"}


def test_who_comes_back_under_another_number_is_not_missing(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    nodes = {k: flower.moving(k, 0.1) for k in range(3)}
    grid = flower.Grid(dict(nodes))

    def restart(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 1:
            grid.clients = {0: nodes[0], 1: nodes[1], 77: nodes[2]}

    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    strategy.start(grid, arrays, num_rounds=3, evaluate_fn=restart)
    assert all(record.lost == {} for record in strategy.reports)
    assert strategy.cohorts == [("0", "1", "2")] * 3


def test_a_draw_is_of_those_who_are_there(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    strategy, result = run(flower, arrays, {4: {2, 3}}, fraction_train=0.5)
    assert all("absent" not in str(record.lost) for record in strategy.reports)
    assert result.train_metrics_clientapp[9]["clients-absent"] >= 1

"""Clients whose replies are finite, well formed and absurd."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.rules import Rule

RULES: list[Rule[Any]] = [fedhaw.FedAvg(), fedhaw.FedHAW(0.1, 1e-3, 1e-2), fedhaw.FedHAWAuto()]


def run(
    flower: SimpleNamespace, arrays: ArrayRecord, rule: Rule[Any], lie: float, **settings: float
) -> RuleStrategy:
    """Four clients of five move by about 0.1; the fifth lies from the third round on."""

    def lying(message: Message) -> Message | None:
        config: Any = message.content.config_records["config"]
        lies = config["server-round"] >= 3
        answer: Message | None = flower.moving("liar", lie if lies else 0.1)(message)
        return answer

    grid = flower.Grid({n: flower.moving(str(n), 0.1 + n / 100) for n in range(4)} | {9: lying})
    strategy = RuleStrategy(rule, fraction_evaluate=0, **settings)  # type: ignore[arg-type]
    strategy.start(grid, arrays, num_rounds=5)
    return strategy


@pytest.mark.parametrize("lie", [-10.0, 1e6, 1e17, 3e38])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_an_absurd_upload_is_lost_and_named(
    flower: SimpleNamespace, arrays: ArrayRecord, rule: Rule[Any], lie: float
) -> None:
    strategy = run(flower, arrays, rule, lie)
    lost = [report.lost for report in strategy.reports]
    assert lost[:2] == [{}, {}]
    assert all(set(reasons) == {"liar"} for reasons in lost[2:])
    assert all("as usual" in r["liar"] or "too long" in r["liar"] for r in lost[2:])
    model = np.concatenate([array.numpy().reshape(-1) for array in list(arrays.values())[:3]])
    assert np.abs(strategy._aggregator.model - model).max() < 5


def test_the_guard_can_be_turned_off(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    strategy = run(flower, arrays, fedhaw.FedAvg(), 1e6, length_limit=0)
    assert all(report.lost == {} for report in strategy.reports)
    assert np.abs(strategy._aggregator.model).max() > 1e5


def test_a_server_that_goes_on_knows_how_long_updates_were(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: object
) -> None:
    """Two clients are no majority: only the rounds before tell that one of them lies."""
    checkpoint = f"{tmp_path}/server.safetensors"

    def strategy() -> RuleStrategy:
        return RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0, checkpoint=checkpoint)

    honest = flower.moving("0", 0.1)
    strategy().start(flower.Grid({0: honest, 1: flower.moving("1", 0.1)}), arrays, num_rounds=2)
    again = strategy()
    again.start(flower.Grid({0: honest, 1: flower.moving("1", 1e6)}), arrays, num_rounds=3)
    assert list(again.reports[-1].lost) == ["1"]

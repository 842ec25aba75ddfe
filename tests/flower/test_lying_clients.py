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


def test_nothing_is_replayed_of_a_refused_client_that_is_hardly_known(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    """A lie within the limits, and then one beyond: the first is not used again."""

    def lying(message: Message) -> Message | None:
        config: Any = message.content.config_records["config"]
        factors = {1: 0.1, 2: 0.4}
        moving = flower.moving("liar", factors.get(int(config["server-round"]), 10.0))
        answer: Message | None = moving(message)
        return answer

    grid = flower.Grid({n: flower.moving(str(n), 0.1 + n / 100) for n in range(4)} | {9: lying})
    strategy = RuleStrategy(fraction_evaluate=0.0)
    strategy.start(grid, arrays, num_rounds=4)
    assert [set(report.lost) for report in strategy.reports] == [set(), set(), *[{"liar"}] * 2]
    assert strategy.state.absent == ()


def test_who_is_different_from_the_start_is_not_refused(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    """One client of eight has a class of its own; the others have soon learnt all they can."""

    def soon_done(name: str) -> Any:
        def answer(message: Message) -> Message | None:
            config: Any = message.content.config_records["config"]
            step = 0.1 ** int(config["server-round"])
            answered: Message | None = flower.moving(name, step)(message)
            return answered

        return answer

    grid = flower.Grid({n: soon_done(str(n)) for n in range(7)} | {9: flower.moving("odd", -0.4)})
    strategy = RuleStrategy(fraction_evaluate=0.0)
    strategy.start(grid, arrays, num_rounds=5)
    assert strategy.state.spared == ("odd",)
    assert [report.lost for report in strategy.reports] == [{}] * 5


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


def test_what_a_client_says_of_its_data_counts_up_to_a_limit(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {n: flower.moving(str(n), 0.1, 10 + n) for n in range(9)}
    clients[9] = flower.moving("boaster", 0.5, 1e12)
    strategy = RuleStrategy(fedhaw.FedHAW(0.1, 1e-3, 1e-2), fraction_evaluate=0.0)
    strategy.start(flower.Grid(clients), arrays, num_rounds=3)
    for record in strategy.reports:
        assert record.weights["boaster"] < 0.2  # a sixth, and what the rule learns
        assert record.note is not None
        assert "client boaster says it has 1e+12 examples; 25.2 count" in record.note


def test_what_a_client_says_of_its_data_does_not_let_it_shout(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    """It counts nearly twice as much as the others, but may not go nearly ten times as far."""
    clients = {n: flower.moving(str(n), 0.1, 10) for n in range(9)}
    for times, lost in ((5.5, []), (6.5, ["boaster"])):
        clients[9] = flower.moving("boaster", 0.1 * times, 1e12)
        strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
        strategy.start(flower.Grid(clients), arrays, num_rounds=1)
        assert list(strategy.reports[0].lost) == lost


def test_where_all_are_honest_the_guards_change_no_bit(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    grid = flower.Grid({n: flower.moving(str(n), 0.1 + n / 100, 10 + n) for n in range(8)})
    free = fedhaw.FedHAWAuto(without="trust")
    guarded, unguarded = (
        strategy.start(grid, arrays, num_rounds=22).arrays
        for strategy in (
            RuleStrategy(fraction_evaluate=0.0),
            RuleStrategy(free, fraction_evaluate=0.0, length_limit=0, examples_limit=0),
        )
    )
    for name, array in guarded.items():
        assert array.data == unguarded[name].data


def test_who_suddenly_has_far_more_data_is_believed_after_a_while(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: object
) -> None:
    def boaster(message: Message) -> Message | None:
        config: Any = message.content.config_records["config"]
        answer: Message | None = flower.moving(
            "boaster", 0.1, 10 if config["server-round"] < 3 else 30
        )(message)
        return answer

    clients = {n: flower.moving(str(n), 0.1, 10) for n in range(3)} | {9: boaster}
    for rounds in (12, 25):  # a server that is started again remembers what it doubts
        strategy = RuleStrategy(
            fedhaw.FedAvg(), fraction_evaluate=0.0, checkpoint=f"{tmp_path}/server.safetensors"
        )
        strategy.start(flower.Grid(clients), arrays, num_rounds=rounds)
        doubted = strategy.reports[9]
        assert doubted.weights["boaster"] == pytest.approx(0.25)
        assert "client boaster says it has 30 examples after 10, which count" in str(doubted.note)
        assert strategy._training.rounds.counts["clients-doubted"] == (rounds == 12)
    assert strategy.reports[-1].weights["boaster"] == pytest.approx(0.5)
    assert strategy.reports[-1].note is None


def test_a_roll_call_does_not_end_the_doubt(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    """A known client that comes back as a new node, and claims more in roll call and reply."""
    clients = {n: flower.moving(str(n), 0.1, 10) for n in range(3)}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, roll_call=True)
    grid = flower.Grid(clients)

    def another_node(server_round: int, _: ArrayRecord) -> None:
        if server_round == 30:
            del grid.clients[2]
            grid.clients[9] = flower.moving("2", 0.1, 1000)

    strategy.start(grid, arrays, num_rounds=32, evaluate_fn=another_node)
    assert strategy.reports[31].weights["2"] == pytest.approx(1 / 3)


def test_what_a_boaster_or_a_nan_reports_does_not_hide_what_the_others_do(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def lying(message: Message) -> Message | None:
        answer: Message | None = flower.moving("liar", 0.1, 1e12)(message)
        assert answer is not None
        for metrics in answer.content.metric_records.values():
            metrics["loss"], metrics["accuracy"] = 5.0, float("nan")
        return answer

    clients = {n: flower.moving(str(n), 0.1, 10) for n in range(9)} | {9: lying}
    result = RuleStrategy(fedhaw.FedAvg()).start(flower.Grid(clients), arrays, num_rounds=1)
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx((5 * 0.1 + 5) / 6)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)


@pytest.mark.parametrize("settings", [{}, {"rule": fedhaw.FedAvg(), "clip": "median"}])
def test_who_is_shortened_is_named(
    flower: SimpleNamespace, arrays: ArrayRecord, settings: dict[str, Any]
) -> None:
    clients = {n: flower.moving(str(n), 0.1) for n in range(4)} | {9: flower.moving("liar", 0.8)}
    strategy = RuleStrategy(fraction_evaluate=0.0, length_limit=10, **settings)
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert strategy.reports[0].note == "shortened the update of client 'liar'"


@pytest.mark.parametrize(
    ("settings", "weight"),
    [({"examples_limit": 0}, 1.0), ({"examples_limit": 0, "max_examples": 10}, 0.25)],
)
def test_the_limits_on_examples_can_be_set(
    flower: SimpleNamespace, arrays: ArrayRecord, settings: dict[str, Any], weight: float
) -> None:
    clients = {n: flower.moving(str(n), 0.1, 10) for n in range(3)}
    clients[9] = flower.moving("boaster", 0.1, 1e12)
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, **settings)
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert strategy.reports[0].weights["boaster"] == pytest.approx(weight)


def test_a_federation_whose_sizes_differ_within_the_limit_is_left_alone(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {n: flower.moving(str(n), 0.1, count) for n, count in enumerate((5, 10, 20, 90))}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert strategy.reports[0].weights["3"] == pytest.approx(90 / 125)
    assert strategy.reports[0].note is None


def test_nothing_a_client_sends_forges_or_floods_the_log(
    flower: SimpleNamespace, arrays: ArrayRecord, caplog: pytest.LogCaptureFixture
) -> None:
    def forging(message: Message) -> Message:
        answer: Message = flower.reply(message, message.content["arrays"], "0\n> lost: client 7")
        return answer

    def flooding(message: Message) -> Message:
        answer: Message = flower.reply(
            message, message.content["arrays"], "flood", examples=[0.5] * 100_000
        )
        return answer

    def strange(message: Message) -> Message:
        record = ArrayRecord({**message.content.array_records["arrays"]})
        record["x" * 500_000] = record["a.bias"]
        answer: Message = flower.reply(message, record, "strange")
        return answer

    def escaping(message: Message) -> Message:
        answer: Message = flower.failure(message, 2, "ValueError: \x1b[2J\x07")
        return answer

    liars = {6: forging, 7: flooding, 8: strange, 9: escaping}
    clients = {n: flower.moving(str(n), 0.1) for n in range(3)} | liars
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    reasons = strategy.reports[0].lost
    assert len(reasons) == 4
    assert all(len(r) < 200 and r.isprintable() for r in [*reasons, *reasons.values()])
    assert strategy._training.rounds.counts["clients-refused"] == 3

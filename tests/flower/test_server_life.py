"""What a server does over its life: limits, schedules, a second start, a run that leads nowhere."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.flower.errors import EverybodyLost
from fedhaw.flower.rounds import flower_metrics
from fedhaw.history import HistoryError, RoundRecord
from fedhaw.rules import Round
from fedhaw.rules.base import LastRound


def quiet(**more: Any) -> RuleStrategy:
    return RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, **more)


def moved(result: Any, arrays: ArrayRecord) -> float:
    return float((result.arrays["a.bias"].numpy() - arrays["a.bias"].numpy()).mean())


def test_a_run_in_which_everybody_is_lost_stops_and_says_so(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def broken(message: Message) -> Any:
        return flower.failure(message, 2, "ValueError: no data")

    grid = flower.Grid({1: broken, 2: broken})
    with pytest.raises(EverybodyLost, match="in the last 3 rounds"):
        quiet(stop_when_lost=3).start(grid, arrays, num_rounds=10)
    assert len(grid.sent) == 6
    patient = quiet(stop_when_lost=0).start(grid, arrays, num_rounds=4)
    assert len(patient.train_metrics_clientapp) == 4


def test_models_that_nobody_can_use_stop_it_as_well(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    grid = flower.Grid({n: flower.moving(str(n), float("nan")) for n in (1, 2)})
    with pytest.raises(EverybodyLost, match="in the last 3 rounds"):
        quiet(stop_when_lost=3).start(grid, arrays, num_rounds=10)


def test_a_round_that_is_lost_now_and_then_stops_nothing(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def flaky(name: str) -> Any:
        answers = flower.moving(name, 0.1)

        def answer(message: Message) -> Any:
            if int(str(message.content["config"]["server-round"])) % 3:
                return flower.failure(message, 2, "ValueError: no data")
            return answers(message)

        return answer

    strategy = quiet(stop_when_lost=3)
    strategy.start(flower.Grid({1: flaky("1"), 2: flaky("2")}), arrays, num_rounds=9)
    assert [len(report.lost) for report in strategy.reports] == [2, 2, 0] * 3


def test_a_reply_far_larger_than_a_model_is_refused(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    honest = flower.moving("1", 1.0)

    def hoarder(message: Message) -> Any:
        reply = flower.moving("2", 5.0)(message)
        reply.content["beside"] = ConfigRecord({"blob": b"x" * 5_000_000})
        return reply

    result = quiet().start(flower.Grid({1: honest, 2: hoarder}), arrays, num_rounds=1)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["clients-lost"] == 1
    assert moved(result, arrays) == pytest.approx(1.0)
    patient = quiet(reply_limit=10.0)
    result = patient.start(flower.Grid({1: honest, 2: hoarder}), arrays, num_rounds=1)
    assert result.train_metrics_clientapp[1]["clients-lost"] == 0


def test_floats_of_another_precision_are_converted(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def in_double(message: Message) -> Any:
        reply = flower.moving("2", 3.0)(message)
        for name, array in list(reply.content["arrays"].items()):
            values = array.numpy()
            if values.dtype.kind == "f":
                reply.content["arrays"][name] = Array(values.astype(np.float64))
        return reply

    grid = flower.Grid({1: flower.moving("1", 1.0), 2: in_double})
    result = quiet().start(grid, arrays, num_rounds=1)
    assert result.train_metrics_clientapp[1]["clients-lost"] == 0
    assert moved(result, arrays) == pytest.approx(2.0)
    assert result.arrays["a.bias"].numpy().dtype == np.float32


def test_a_configuration_may_be_a_function_of_the_round(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Any
) -> None:
    told: list[Any] = []

    def listening(message: Message) -> Any:
        told.append(message.content["config"]["rate"])
        return flower.moving("1", 0.1)(message)

    grid = flower.Grid({1: listening, 2: flower.moving("2", 0.1)})
    for rounds in (2, 4):  # killed after two, and gone on
        quiet(checkpoint=tmp_path / "c.safetensors").start(
            grid,
            arrays,
            num_rounds=rounds,
            train_config=lambda server_round: ConfigRecord({"rate": 0.5**server_round}),
        )
    assert told == [0.5, 0.25, 0.125, 0.0625]


def test_a_second_start_begins_afresh(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    rule = fedhaw.FedAvgM()
    strategy = RuleStrategy(rule, fraction_evaluate=0.0)
    grid = flower.Grid({1: flower.moving("1", 0.1), 2: flower.moving("2", 0.3)})
    first, second = (strategy.start(grid, arrays, num_rounds=3) for _ in range(2))
    assert moved(first, arrays) == moved(second, arrays)
    assert len(strategy.reports) == 3


def test_a_second_start_forgets_what_was_usual(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    for others in (0.3, 0.001):
        moves = {1: others, 2: others, 3: 0.3}
        grid = flower.Grid({k: flower.moving(str(k), by) for k, by in moves.items()})
        strategy.start(grid, arrays, num_rounds=6)
    assert all("3" in report.lost for report in strategy.reports)


def test_a_second_start_knows_nobody(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    strategy = quiet(min_train_nodes=1, min_available_nodes=1)
    strategy.start(flower.Grid({1: flower.moving("old", 0.1, 10)}), arrays, num_rounds=1)
    strategy.start(flower.Grid({2: flower.moving("new", 0.1, 10)}), arrays, num_rounds=1)
    assert strategy.roster.examples == {"new": 10}
    assert strategy.reports[0].lost == {}


def test_a_file_that_is_not_the_runs_history_stays_as_it_is(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
) -> None:
    grid = flower.Grid({n: flower.moving(str(n), 0.1) for n in (1, 2)})
    notes = tmp_path / "notes.csv"
    for text, words in (("a,b\n", "this is not a history"), ("a,b", "is no history; give")):
        notes.write_text(text)
        with pytest.raises(HistoryError, match=words):
            quiet(history=notes).start(grid, arrays, num_rounds=1)
        assert notes.read_text() == text
    notes.write_text('{"kind":"ru')  # the first line of a server that was killed there
    quiet(history=notes).start(grid, arrays, num_rounds=1)
    assert len(fedhaw.History.read(notes).records) == 1


def test_a_history_that_is_not_the_runs_costs_no_checkpoint(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
) -> None:
    grid = flower.Grid({n: flower.moving(str(n), 0.1) for n in (1, 2)})
    checkpoint = tmp_path / "c.safetensors"
    quiet(checkpoint=checkpoint).start(grid, arrays, num_rounds=3)
    there = sorted(tmp_path.iterdir())
    for more in ({}, {"resume_from": 1}):
        strategy = quiet(checkpoint=checkpoint, history=tmp_path / "h.jsonl", **more)
        with pytest.raises(HistoryError, match="holds 0 rounds, but the checkpoint was made after"):
            strategy.start(grid, arrays, num_rounds=4)
        assert sorted(tmp_path.iterdir()) == there


def test_a_finished_run_says_that_nothing_is_left_to_do(
    flower: SimpleNamespace,
    arrays: ArrayRecord,
    tmp_path: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = flower.Grid({1: flower.moving("1", 0.1), 2: flower.moving("2", 0.3)})
    file = tmp_path / "c.safetensors"
    quiet(checkpoint=file).start(grid, arrays, num_rounds=2)
    sent = len(grid.sent)
    with caplog.at_level(logging.INFO, logger="flwr.fedhaw"):
        quiet(checkpoint=file).start(grid, arrays, num_rounds=2)
    assert "All 2 rounds are done already" in caplog.text
    assert len(grid.sent) == sent


def test_the_log_has_metrics_and_results_as_flower_prints_them(
    flower: SimpleNamespace, arrays: ArrayRecord, caplog: pytest.LogCaptureFixture
) -> None:
    grid = flower.Grid({1: flower.moving("1", 0.1), 2: flower.moving("2", 0.3)})
    with caplog.at_level(logging.INFO, logger="flwr.fedhaw"):
        RuleStrategy().start(grid, arrays, num_rounds=1)
    assert caplog.text.count("Aggregated MetricRecord") == 2
    assert "Final results" in caplog.text


def test_no_query_is_sent_unless_asked_for(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    grid = flower.Grid({n: flower.moving(str(n), 0.1) for n in range(1, 5)})
    RuleStrategy(fraction_train=0.5).start(grid, arrays, num_rounds=2)
    assert {message.metadata.message_type for message in grid.sent} == {"train", "evaluate"}


def test_nodes_that_claim_one_client_are_named(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    strategy = quiet()
    grid = flower.Grid({n: flower.moving("7" if n < 13 else "8", 0.1) for n in (11, 12, 13)})
    strategy.start(grid, arrays, num_rounds=1)
    assert "nodes 11, 12 claim to be '7'" in str(strategy.reports[0].lost)


def test_clip_shortens_what_is_long(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    steps = {1: 0.1, 2: 0.1, 3: 0.5}
    grid = flower.Grid({n: flower.moving(str(n), step) for n, step in steps.items()})
    result = quiet(clip="median").start(grid, arrays, num_rounds=1)
    assert moved(result, arrays) == pytest.approx(0.1)
    assert result.train_metrics_clientapp[1]["shortened"] == 1


@pytest.mark.parametrize(
    "rule", [fedhaw.FedHAW(eta=0.1, eta_gamma=0.01, eta_lambda=1.0), fedhaw.FedHAWAuto()]
)
def test_a_clip_that_is_never_reached_changes_nothing(
    flower: SimpleNamespace, arrays: ArrayRecord, rule: Any
) -> None:
    """The rule within remembers the round's models, which the next one's must not overwrite."""
    results = []
    settings: list[dict[str, Any]] = [{}, {"clip": 1e6}]
    for more in settings:
        grid = flower.Grid({n: now_and_then(flower, n) for n in range(4)})
        strategy = RuleStrategy(rule, fraction_evaluate=0.0, length_limit=0, **more)
        results.append(strategy.start(grid, arrays, num_rounds=5).arrays)
    for name in arrays:
        plain, clipped = (found[name].numpy() for found in results)
        assert np.array_equal(plain, clipped), name


def now_and_then(flower: SimpleNamespace, number: int) -> Any:
    """A client whose update is another one in each round, and that is silent in some."""

    def answer(message: Message) -> Any:
        config: Any = message.content.config_records["config"]
        t = config["server-round"]
        if (t + number) % 3 == 0:
            return flower.failure(message, 2, "ValueError: no data")
        return flower.moving(str(number), 0.1 * (number + 1) / (t + number))(message)

    return answer


def test_the_history_tells_of_a_second_server_and_of_the_whole_time(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
) -> None:
    files = {"checkpoint": tmp_path / "c.safetensors", "history": tmp_path / "history.jsonl"}
    clients = {n: flower.moving(str(n), 0.1) for n in range(3)}
    for rounds in (2, 4):
        strategy = RuleStrategy(
            fedhaw.FedAvg(),
            fraction_evaluate=0.0,
            checkpoint=files["checkpoint"],
            history=files["history"],
        )
        strategy.start(flower.Grid(clients), arrays, num_rounds=rounds)
    lines = [json.loads(line) for line in files["history"].read_text().splitlines()]
    notes = [line.get("note") for line in lines if line["kind"] == "round"]
    assert notes == [None, None, "the server was started again after round 2", None]
    spent = sum(sum(line["seconds"].values()) for line in lines if line["kind"] == "round")
    assert lines[-1]["kind"] == "end"
    assert lines[-1]["seconds"] >= spent


def test_what_a_rule_calls_like_a_metric_of_the_clients_takes_nobodys_place() -> None:
    record = RoundRecord(0, metrics={"loss": 7.0, "clients-lost": (8.0, None), "gamma": 9.0})
    metrics = flower_metrics(record, {"clients-lost": 0}, taken={"loss"})
    assert metrics.keys() == {"rule/loss", "rule/clients-lost", "gamma", "clients-lost"}
    assert metrics["clients-lost"] == 0


@dataclass(frozen=True)
class Remembered(LastRound):
    """The round's models, within a mapping and a tuple."""

    last: Mapping[Any, Any] = field(default_factory=dict)


class Remembering:
    """FedAvg that looks whether the models it remembers are still what they were."""

    def __init__(self) -> None:
        self.kept: list[bool] = []
        self.copies: list[Any] = []

    def init(self) -> Remembered:
        return Remembered()

    def aggregate(self, state: Remembered, current: Round) -> tuple[Any, Remembered]:
        self.kept += map(np.array_equal, state.last.get("models", ()), self.copies)
        self.copies = [model.copy() for model in current.client_models]
        model, _ = fedhaw.FedAvg().aggregate(fedhaw.FedAvg().init(), current)
        models = {"models": tuple(current.client_models)}
        return model, Remembered(current.clients, current.shares, last=models)


def test_what_a_state_holds_within_mappings_and_tuples_is_not_overwritten(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    rule = Remembering()
    grid = flower.Grid({n: flower.moving(str(n), 0.1 * n) for n in (1, 2)})
    RuleStrategy(rule, fraction_evaluate=0.0).start(grid, arrays, num_rounds=3)
    assert rule.kept == [True] * 4

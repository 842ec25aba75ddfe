"""RuleStrategy on a grid in memory: one run, seen from outside."""

import cProfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from numpy.typing import NDArray

import fedhaw
from fedhaw.clients import SCAFFOLD
from fedhaw.flower import InvalidSetting, NoNodes, RuleStrategy, array_proxy, cohort
from fedhaw.rules import Round, Rule
from fedhaw.uplink import LetterUplink


def flat(record: ArrayRecord) -> NDArray[Any]:
    floats = [array.numpy().reshape(-1) for array in record.values()]
    return np.concatenate([values for values in floats if values.dtype.kind == "f"])


DEEP: list[Any] = []
DEEP.append(DEEP)
"""A list that holds itself."""

RULES: dict[str, Rule[Any]] = {
    "fedavg": fedhaw.FedAvg(),
    "fedadp": fedhaw.FedAdp(),
    "fedhyper": fedhaw.FedHyperG(),
    "fedlws": fedhaw.FedLWS(),
    "fedhaw": fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-2),
    "fedhaw-auto": fedhaw.FedHAWAuto(),
    "fedexp": fedhaw.FedExP(),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_gives_what_it_gives_on_its_own(
    name: str, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    rule, steps, sizes = RULES[name], (0.1, -0.3, 0.2), (10, 20, 5)
    clients = {100 - k: flower.moving(k, steps[k], sizes[k]) for k in range(3)}
    strategy = RuleStrategy(rule, fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=4)

    w, state = flat(arrays), rule.init()
    layers = [slice(0, 15), slice(15, 21)]
    for _ in range(4):
        W = np.stack([w + np.float32(step) for step in steps])
        w, state = rule.aggregate(state, Round(w, W, sizes, None, ("0", "1", "2"), layers))
    np.testing.assert_array_equal(flat(result.arrays), w)
    np.testing.assert_array_equal(strategy.state.weights, state.weights)
    assert result.arrays["b.count"].numpy() == 7 + 4
    assert result.arrays["b.count"].numpy().dtype == np.int64
    assert list(result.arrays) == list(arrays)


@pytest.mark.parametrize("name", RULES)
def test_running_statistics_are_averaged_and_nothing_else_notices(
    name: str, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    rule, steps, sizes = RULES[name], (0.1, 0.3, 0.2), (10, 20, 5)
    clients = {100 - k: flower.moving(k, steps[k], sizes[k]) for k in range(3)}
    without = RuleStrategy(rule, fraction_evaluate=0.0)
    plain = without.start(flower.Grid(clients), arrays, num_rounds=4).arrays

    normed = ArrayRecord({"a.running_var": Array(np.full(3, 1e4, np.float32)), **arrays})
    strategy = RuleStrategy(rule, fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), normed, num_rounds=4).arrays
    assert list(result) == list(normed)
    for key in plain:
        np.testing.assert_allclose(result[key].numpy(), plain[key].numpy(), rtol=1e-5)
    np.testing.assert_allclose(strategy.state.weights, without.state.weights, rtol=1e-6)
    moved = sum(
        sum(w * steps[int(c)] for c, w in report.weights.items()) for report in strategy.reports
    )
    np.testing.assert_allclose(result["a.running_var"].numpy(), 1e4 + moved, rtol=2e-7)


def test_statistics_that_are_not_finite_lose_their_client(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def spoilt(message: Any) -> Any:
        answer = flower.moving(1, 0.5)(message)
        records = answer.content.array_records
        if "arrays" in records:
            records["arrays"]["a.running_var"] = Array(np.full(3, np.nan, np.float32))
        return answer

    normed = ArrayRecord({**arrays, "a.running_var": Array(np.ones(3, np.float32))})
    strategy = RuleStrategy(fedhaw.FedHAW(0.1, 1e-3, 1e-2))
    grid = flower.Grid({1: flower.moving(0, 0.1), 2: spoilt})
    result = strategy.start(grid, normed, num_rounds=2)
    assert [dict(report.lost) for report in strategy.reports] == [{"1": "not finite"}] * 2
    assert np.isfinite(flat(result.arrays)).all()


def test_fedavg_agrees_with_flowers_own(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    del arrays["b.count"]  # Flower would make it a float
    clients = {k: flower.moving(k, 0.1 * k, k) for k in range(1, 4)}
    ours = RuleStrategy(fedhaw.FedAvg()).start(flower.Grid(clients), arrays, num_rounds=3)
    theirs = FlowerFedAvg().start(flower.Grid(clients), arrays, num_rounds=3)
    np.testing.assert_allclose(flat(ours.arrays), flat(theirs.arrays), rtol=1e-5)
    assert ours.train_metrics_clientapp[3]["loss"] == pytest.approx(
        theirs.train_metrics_clientapp[3]["loss"]
    )
    assert ours.evaluate_metrics_clientapp[3]["accuracy"] == 0.5


def test_fedlaw_learns_on_the_servers_own_samples(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    target = flat(arrays) + np.float32(1.0)

    def loss(named: Any) -> Any:
        flat_model = np.concatenate([values.reshape(-1) for values in named.values()])
        gap = flat_model - target
        ends = np.cumsum([values.size for values in named.values()])[:-1]
        parts = zip(named, np.split(gap, ends), strict=True)
        return float(gap @ gap) / 2, dict(parts)

    rule = fedhaw.FedLAW(array_proxy(arrays, loss), epochs=50, lr=0.05)
    clients = {1: flower.moving(0, 1.0), 2: flower.moving(1, -1.0)}
    strategy = RuleStrategy(rule)
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    weights = dict(zip(strategy.state.clients, strategy.state.weights, strict=True))
    assert weights["0"] > 0.8


def test_the_order_in_which_replies_arrive_does_not_matter(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def run(nodes: list[int]) -> NDArray[Any]:
        clients = {node: flower.moving(k, 0.1 + 0.7 * k, k + 1) for k, node in enumerate(nodes)}
        rule = fedhaw.FedHAW(eta=0.1, eta_gamma=1e-2, eta_lambda=1e-1)
        return flat(RuleStrategy(rule).start(flower.Grid(clients), arrays, num_rounds=5).arrays)

    np.testing.assert_array_equal(run([*range(12)]), run([*range(50, 38, -1)]))


def test_a_cohort_is_drawn_by_seed_and_client_not_by_node(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def cohorts(seed: int, nodes: list[int]) -> list[tuple[str, ...]]:
        clients = {node: flower.moving(k, 0.1) for k, node in enumerate(nodes)}
        strategy = RuleStrategy(fedhaw.FedAvg(), fraction_train=0.3, seed=seed, roll_call=True)
        strategy.start(flower.Grid(clients), arrays, num_rounds=6)
        return strategy.cohorts

    first = cohorts(5, [*range(100, 110)])
    assert {len(cohort) for cohort in first} == {3}
    assert len(set(first)) > 1
    assert first == cohorts(5, [*range(200, 190, -1)])
    assert first != cohorts(6, [*range(100, 110)])


def test_an_app_that_never_heard_of_client_ids_is_known_by_its_nodes(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {node: flower.moving(None, 0.1) for node in (31, 4)}
    strategy = RuleStrategy(fedhaw.FedAvg())
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert strategy.cohorts[0] == ("4", "31")


def test_configurations_reach_the_clients_with_the_round(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    grid = flower.Grid({1: flower.moving(0, 0.1), 2: flower.moving(1, 0.1)})
    RuleStrategy(fedhaw.FedAvg()).start(
        grid,
        arrays,
        num_rounds=2,
        train_config=ConfigRecord({"lr": 0.5}),
        evaluate_config=ConfigRecord({"split": "test"}),
    )
    configs = [(m.metadata.message_type, dict(m.content["config"])) for m in grid.sent]
    assert ("train", {"lr": 0.5, "server-round": 2}) in configs
    assert ("evaluate", {"split": "test", "server-round": 2}) in configs


def test_the_server_evaluates_before_the_first_and_after_every_round(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    seen = []

    def evaluate(server_round: int, record: ArrayRecord) -> MetricRecord:
        seen.append((server_round, float(flat(record).sum())))
        return MetricRecord({"accuracy": 0.1 * server_round})

    grid = flower.Grid({1: flower.moving(0, 0.1), 2: flower.moving(1, 0.1)})
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    result = strategy.start(grid, arrays, num_rounds=2, evaluate_fn=evaluate)
    assert [server_round for server_round, _ in seen] == [0, 1, 2]
    assert len({total for _, total in seen}) == 3
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == pytest.approx(0.2)
    assert strategy.reports[1].evaluation == {"accuracy": pytest.approx(0.2)}


def test_only_one_reply_is_held_at_a_time(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    grid = flower.Grid({k: flower.moving(k, 0.1) for k in range(20)})
    RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0).start(grid, arrays, num_rounds=1)
    assert grid.most_pulled == 1


def test_a_rule_that_forgets_uses_one_matrix_and_fedhaw_two(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    for rule, matrices in ((fedhaw.FedAvg(), 1), (RULES["fedhaw"], 2), (fedhaw.FedHAWAuto(), 2)):
        strategy = RuleStrategy(rule)
        grid = flower.Grid({k: flower.moving(k, 0.1) for k in range(3)})
        strategy.start(grid, arrays, num_rounds=6)
        assert len(strategy._aggregator._buffers) == matrices


def test_without_a_rule_it_is_the_one_that_has_nothing_to_set(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {k: flower.moving(k, 0.1 * k) for k in range(3)}
    default, auto = (
        flat(strategy.start(flower.Grid(clients), arrays, num_rounds=3).arrays)
        for strategy in (RuleStrategy(), RuleStrategy(fedhaw.FedHAWAuto()))
    )
    np.testing.assert_array_equal(default, auto)


def test_flowers_own_loop_is_refused(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    """It would ignore deadline, checkpoint and history without a word."""
    from flwr.serverapp.strategy import Strategy

    grid = flower.Grid({k: flower.moving(k, 0.1 * k) for k in range(3)})
    with pytest.raises(InvalidSetting, match="cannot run inside another strategy"):
        Strategy.start(RuleStrategy(RULES["fedhaw"]), grid, arrays, num_rounds=3)


def test_a_list_of_arrays_and_half_precision_come_back_as_they_were(
    flower: SimpleNamespace,
) -> None:
    arrays = ArrayRecord(
        [np.ones((2, 3), np.float16), np.ones(2, np.float64), np.asfortranarray(np.eye(3, 2))]
    )
    clients = {k: flower.moving(k, 0.5) for k in range(2)}
    result = RuleStrategy(fedhaw.FedAvg()).start(flower.Grid(clients), arrays, num_rounds=1)
    assert [a.numpy().dtype.name for a in result.arrays.values()] == [
        "float16", "float64", "float64",
    ]  # fmt: skip
    np.testing.assert_allclose(result.arrays["2"].numpy(), np.eye(3, 2) + 0.5)


def test_nobody_at_all_is_said_clearly(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    strategy = RuleStrategy(fedhaw.FedAvg(), nodes_timeout=0.05)
    with pytest.raises(NoNodes, match="No SuperNode connected"):
        strategy.start(flower.Grid({}), arrays)


@pytest.mark.parametrize("minimum", ["min_available_nodes", "min_train_nodes"])
def test_too_few_nodes_stop_the_run_and_it_can_go_on(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path, minimum: str
) -> None:
    """Nine of ten nodes leave: no round is held with the one that is left."""
    nodes = {k: flower.moving(k, 0.1) for k in range(10)}
    grid = flower.Grid(dict(nodes))
    settings: dict[str, Any] = {
        minimum: 5,
        "nodes_timeout": 0.05,
        "fraction_evaluate": 0.0,
        "checkpoint": tmp_path / "checkpoint.safetensors",
    }

    def leave(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 2:
            grid.clients = {0: nodes[0]}

    strategy = RuleStrategy(fedhaw.FedAvg(), **settings)
    with pytest.raises(NoNodes, match="Only 1 of the 5 nodes that a round needs were there"):
        strategy.start(grid, arrays, num_rounds=4, evaluate_fn=leave)
    assert len(strategy.reports) == 2
    again = RuleStrategy(fedhaw.FedAvg(), **settings)
    again.start(flower.Grid(nodes), arrays, num_rounds=4)
    assert [len(cohort) for cohort in again.cohorts] == [10, 10]


def test_too_few_nodes_may_go_on_without_the_others(
    flower: SimpleNamespace, arrays: ArrayRecord, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = RuleStrategy(
        fedhaw.FedAvg(), min_available_nodes=5, nodes_timeout=0.05, too_few_nodes="go on"
    )
    with caplog.at_level("WARNING", "flwr.fedhaw"):
        strategy.start(flower.Grid({1: flower.moving(0, 0.1)}), arrays, num_rounds=1)
    assert strategy.cohorts[0] == ("0",)
    assert "Only 1 of the 5 nodes" in caplog.text


def test_a_round_that_waits_for_nodes_says_so_once_a_minute(
    flower: SimpleNamespace,
    arrays: ArrayRecord,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(cohort, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    grid = flower.Grid({1: flower.moving(0, 0.1)})
    with caplog.at_level("INFO", "flwr.fedhaw"), pytest.raises(NoNodes, match="1 of the 5 nodes"):
        RuleStrategy(min_available_nodes=5, nodes_timeout=200.0).start(grid, arrays)
    assert caplog.text.count("Waiting for nodes: 1 of 5 are there.") == 4
    assert now == pytest.approx(200, abs=1)


def test_the_work_of_a_round_grows_with_the_nodes_and_not_with_their_square(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def calls(nodes: int) -> int:
        """How many functions two rounds call."""
        grid = flower.Grid({n: flower.moving(n, 0.1) for n in range(nodes)})
        strategy, profile = RuleStrategy(fedhaw.FedAvg(), roll_call=True), cProfile.Profile()
        profile.runcall(strategy.start, grid, arrays, num_rounds=2)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(200) < 2.2 * calls(100)


def test_who_is_only_awaited_at_the_start_is_not_needed(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    settings: dict[str, Any] = {"nodes_at_start": 5, "min_available_nodes": 1}
    strategy = RuleStrategy(
        fedhaw.FedAvg(), min_train_nodes=1, min_evaluate_nodes=1, nodes_timeout=0.05, **settings
    )
    strategy.start(flower.Grid({1: flower.moving(0, 0.1)}), arrays, num_rounds=1)
    assert strategy.cohorts[0] == ("0",)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fraction_train": 1.5}, "fraction_train"),
        ({"round_deadline": 0.0}, "round_deadline"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"description": {"nmae": "x"}}, "nmae"),
        ({"description": {3: "x"}}, "unknown entry 3"),
        ({"description": {"name": 3}}, "description's name is 3; it must be text"),
        ({"description": {"config": 3}}, "description's config is 3; give a mapping"),
        ({"description": {"config": {"deep": DEEP}}}, "description's config is"),
        (
            {"description": {"clients": ["0"]}},
            "clients is .*; give the clients by name",
        ),
        ({"description": {"clients": {"0": 64}}}, "description's clients is"),
        ({"description": {"clients": {"0": {"examples": -1}}}}, "description's clients is"),
        ({"description": {"clients": {"0": {"labels": "64"}}}}, "description's clients is"),
        ({"max_examples": 0}, "max_examples"),
        ({"examples_limit": -1.0}, "examples_limit"),
        ({"examples_limit": float("nan")}, "examples_limit"),
        ({"nodes_timeout": None}, "nodes_timeout"),
        ({"uplink": 0.3}, "uplink"),
        ({"late_rounds": 2.5}, "late_rounds"),
        ({"min_train_nodes": "2"}, "min_train_nodes"),
        ({"fraction_train": True}, "fraction_train"),
        ({"checkpoints_kept": 1.5}, "checkpoints_kept"),
        ({"node_clients": ["a"]}, "node_clients"),
        ({"node_clients": {"client-0": 0}}, "client-0': 0}; give the client's id .* as text"),
        ({"rule": "fedavg"}, "rule is 'fedavg'; give a rule such as"),
        ({"rule": fedhaw.FedAvg}, "rule is <class .*; give a rule such as"),
        ({"privacy": 1.0}, "privacy is 1.0; give Privacy"),
        ({"client_update": "scaffold"}, "client_update is 'scaffold'; give what the clients' app"),
        ({"client_update": SCAFFOLD}, "client_update is <class"),
        ({"uplink": LetterUplink}, "uplink is <class"),
        ({"statistics": "running_mean"}, "statistics is 'running_mean'; give a tuple"),
        ({"layer_of": 3}, "layer_of is 3"),
        ({"train_metrics_aggr_fn": 3}, "train_metrics_aggr_fn is 3"),
        ({"evaluate_metrics_aggr_fn": 3}, "evaluate_metrics_aggr_fn is 3"),
        ({"weighted_by_key": 3}, "weighted_by_key is 3; it must be text"),
        ({"arrayrecord_key": None}, "arrayrecord_key is None"),
        ({"too_few_nodes": "wait"}, 'too_few_nodes is \'wait\'; choose "stop" or "go on"'),
        ({"roll_call": "no"}, "roll_call is 'no'; it must be True or False"),
        ({"checkpoint": 5}, "checkpoint is 5; give the path"),
        ({"history": 5}, "history is 5; give the path"),
        ({"history": "h.jsonl.gz"}, "history is 'h.jsonl.gz'; give the path .* not .gz"),
        ({"checkpoint": "run/x", "history": "./run/x"}, "history is './run/x'; give another path"),
        ({"description": 5}, "description is 5"),
        ({"reply_limit": float("inf")}, "reply_limit is inf; it must be a finite number"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        RuleStrategy(**settings)


@dataclass(frozen=True)
class OwnState:
    clients: tuple[Any, ...] = ()
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Own:
    """A rule of a user's own, who thinks of nothing but the formula."""

    formula: Callable[[Round], Any]

    def init(self) -> OwnState:
        return OwnState()

    def aggregate(self, state: OwnState, current: Round) -> tuple[Any, OwnState]:
        return self.formula(current), OwnState(current.clients, current.shares)


def plain_mean(current: Round) -> Any:
    """In float64, whatever the models are in."""
    return np.asarray(current.shares) @ np.asarray(current.client_models)


def test_nan_never_reaches_the_model_of_an_own_rule(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {k: flower.moving(k, step) for k, step in enumerate((0.1, float("nan"), 0.2))}
    strategy = RuleStrategy(Own(plain_mean), fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=2)
    assert np.isfinite(flat(result.arrays)).all()
    assert [dict(report.lost) for report in strategy.reports] == [{"1": "not finite"}] * 2


def test_an_own_rule_that_makes_nan_moves_nothing(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {k: flower.moving(k, 0.1) for k in range(3)}
    strategy = RuleStrategy(Own(lambda current: current.global_model * np.nan))
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=2)
    np.testing.assert_array_equal(flat(result.arrays), flat(arrays))
    assert all("NaN" in (report.note or "") for report in strategy.reports)


def test_an_own_rule_may_return_float64_and_goes_on(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    assert (
        plain_mean(Round(np.zeros(2, np.float32), np.ones((1, 2), np.float32), [1])).dtype == float
    )
    clients = {k: flower.moving(k, 0.5) for k in range(3)}
    strategy = RuleStrategy(Own(plain_mean), fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=4)
    np.testing.assert_allclose(flat(result.arrays), flat(arrays) + 2.0, rtol=1e-5)
    assert flat(result.arrays).dtype == np.float32


def test_an_own_rule_may_return_a_clients_row(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    """The next replies are decoded where it lies, and must not change the model they are of."""

    def farthest(current: Round) -> Any:
        distances = np.abs(current.client_models - current.global_model).sum(axis=1)
        return current.client_models[int(distances.argmax())]

    clients = {k: flower.moving(k, 0.1 + k) for k in range(3)}
    strategy = RuleStrategy(Own(farthest), fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=5)
    np.testing.assert_allclose(flat(result.arrays), flat(arrays) + 5 * 2.1, rtol=1e-5)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "returned NoneType of shape"),
        (0.5, "returned float of shape"),
        ([0.5] * 21, "returned list of shape"),
        (np.zeros((1, 21)), r"returned float64 of shape \(1, 21\)"),
        (np.zeros(20), r"returned float64 of shape \(20,\)"),
        (np.zeros(21, dtype=int), "returned int64 of shape"),
    ],
)
def test_what_an_own_rule_may_not_return(
    flower: SimpleNamespace, arrays: ArrayRecord, made: Any, words: str
) -> None:
    strategy = RuleStrategy(Own(lambda current: made))
    clients = {k: flower.moving(k, 0.1) for k in range(3)}
    with pytest.raises(fedhaw.FedhawError, match=words):
        strategy.start(flower.Grid(clients), arrays, num_rounds=2)


def test_arrays_that_are_no_numbers_are_refused(flower: SimpleNamespace) -> None:
    record = ArrayRecord()
    record["words"] = Array(np.array(["a", "b"]))
    with pytest.raises(fedhaw.FedhawError, match="words"):
        RuleStrategy(fedhaw.FedAvg()).start(flower.Grid({1: flower.moving(0, 0.1)}), record)


def test_what_the_rule_learnt_reaches_result_and_history_by_name(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    strategy = RuleStrategy(
        fedhaw.FedHAWAuto(), fraction_evaluate=0.0, history=tmp_path / "history.jsonl"
    )
    clients = {k: flower.moving(k, step) for k, step in enumerate((0.1, 0.3, 0.2))}
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=3)
    history = fedhaw.History.read(tmp_path)
    numbers = {n: v for n, v in strategy.state.metrics.items() if isinstance(v, float)}
    assert set(history.metrics) == set(numbers)
    for name, value in numbers.items():
        assert history.metrics[name][-1] == value == result.train_metrics_clientapp[3][name]

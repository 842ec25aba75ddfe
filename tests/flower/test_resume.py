"""A server killed after any round goes on as if nothing had happened."""

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

import fedhaw
from fedhaw.flower import Checkpoint, CheckpointError, RuleStrategy
from fedhaw.flower.checkpoints import load, save
from fedhaw.rules import Rule
from fedhaw.simulation.history import History

RULES: list[Rule[Any]] = [
    fedhaw.FedAvg(),
    fedhaw.FedAdp(),
    fedhaw.FedHyperG(),
    fedhaw.FedLWS(),
    fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1),
    fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1, history_dtype="bfloat16"),
    fedhaw.FedHAWAuto(),
]


class Killed(BaseException):
    """As rude as a signal."""


def round_of(message: Message) -> int:
    return int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]


def flat(record: ArrayRecord) -> NDArray[Any]:
    return np.concatenate([a.numpy().reshape(-1).astype(np.float64) for a in record.values()])


def federation(flower: SimpleNamespace, first_node: int = 0) -> dict[int, Any]:
    """Clients whose step depends on the round, one of them lost every third round."""

    def client(k: int) -> Any:
        def answer(message: Message) -> Any:
            now = round_of(message)
            if k == 1 and now % 3 == 0:
                return flower.failure(message, 2, "boom")
            return flower.moving(k, 0.1 * k - 0.03 * now, 10 + k)(message)

        return answer

    return {first_node + k: client(k) for k in range(4)}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_resumed_equals_uninterrupted_bit_for_bit(
    rule: Rule[Any], tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def strategy(name: str) -> RuleStrategy:
        return RuleStrategy(
            rule,
            fraction_evaluate=0.0,
            checkpoint=tmp_path / f"{name}.safetensors",
            history=tmp_path / f"{name}.jsonl",
        )

    whole = strategy("whole").start(flower.Grid(federation(flower)), arrays, num_rounds=7)

    def kill(server_round: int, _: ArrayRecord) -> None:
        if server_round == 5:
            raise Killed

    with pytest.raises(Killed):
        strategy("cut").start(
            flower.Grid(federation(flower)), arrays, num_rounds=7, evaluate_fn=kill
        )
    # The nodes come back under other numbers, as they do when the SuperLink has no database.
    resumed = strategy("cut").start(
        flower.Grid(federation(flower, first_node=500)), arrays, num_rounds=7
    )
    assert sorted(resumed.train_metrics_clientapp) == [5, 6, 7]
    np.testing.assert_array_equal(flat(resumed.arrays), flat(whole.arrays))

    histories = [History.read(tmp_path / f"{name}.jsonl") for name in ("whole", "cut")]
    assert histories[1].finished
    np.testing.assert_array_equal(histories[1].rounds, range(7))
    np.testing.assert_array_equal(histories[0].weights, histories[1].weights)
    np.testing.assert_array_equal(histories[0].lost, histories[1].lost)


def test_a_finished_run_returns_its_model_at_once(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    file = tmp_path / "c.safetensors"
    first = RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0).start(
        flower.Grid(federation(flower)), arrays, num_rounds=2
    )
    again = RuleStrategy(fedhaw.FedAvg(), checkpoint=file).start(
        flower.Grid({}), arrays, num_rounds=2
    )
    np.testing.assert_array_equal(flat(again.arrays), flat(first.arrays))


def test_the_history_is_one_that_reports_read(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    from fedhaw.reports.runs import read_run

    strategy = RuleStrategy(
        fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1),
        fraction_evaluate=0.0,
        history=tmp_path / "history.jsonl",
        seed=3,
        description={"name": "field trial", "config": {"rounds": 4}},
    )
    from flwr.app import MetricRecord

    strategy.start(
        flower.Grid(federation(flower)),
        arrays,
        num_rounds=4,
        evaluate_fn=lambda r, _: MetricRecord({"accuracy": 0.1 * r, "loss": float("nan")}),
    )
    run = read_run(tmp_path / "history.jsonl")
    assert (run.name, run.rule, run.seed, run.finished) == ("field trial", "fedhaw", 3, True)
    assert run.clients == ("0", "1", "2", "3")
    np.testing.assert_allclose(run.at("accuracy"), [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(run.shares.sum(), 1.0)
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert records[0]["clients"]["2"] == {"examples": 12}
    assert records[3]["lost"] == {"1": "exception: boom"}
    assert records[3]["loss"] is None
    assert records[3]["bytes"]["down"] > 4 * 21 * 4


def test_a_checkpoint_of_another_model_or_rule_is_refused(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    file = tmp_path / "c.safetensors"
    grid = flower.Grid(federation(flower))
    RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0).start(grid, arrays, 1)
    with pytest.raises(CheckpointError, match="does not fit the rule"):
        RuleStrategy(fedhaw.FedHyperG(), checkpoint=file).start(grid, arrays, 2)
    other = ArrayRecord([np.zeros(3, np.float32)])
    with pytest.raises(CheckpointError, match="other arrays"):
        RuleStrategy(fedhaw.FedAvg(), checkpoint=file).start(grid, other, 2)


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty"])
def test_a_damaged_checkpoint_is_said_clearly(
    damage: str, tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    file = tmp_path / "c.safetensors"
    grid = flower.Grid(federation(flower))
    RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0).start(grid, arrays, 1)
    data = bytearray(file.read_bytes())
    if damage == "cut":
        data = data[:-5]
    elif damage == "flipped":
        data[-3] ^= 1
    elif damage == "foreign":
        data = bytearray(b"something else entirely")
    else:
        data = bytearray()
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"c\.safetensors"):
        RuleStrategy(fedhaw.FedAvg(), checkpoint=file).start(grid, arrays, 2)


def test_the_checkpoint_is_plain_safetensors(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    from safetensors.numpy import load_file

    file = tmp_path / "c.safetensors"
    rule = fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1)
    strategy = RuleStrategy(rule, checkpoint=file, fraction_evaluate=0.0)
    strategy.start(flower.Grid(federation(flower)), arrays, num_rounds=2)
    stored = load_file(file)
    np.testing.assert_array_equal(stored["state.previous"], strategy.state.previous)
    assert stored["rest.b.count"] == 9


def test_after_a_resume_it_waits_for_the_clients_it_had(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    file = tmp_path / "c.safetensors"
    RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0).start(
        flower.Grid(federation(flower)), arrays, num_rounds=1
    )
    waiting = federation(flower)
    late = waiting.pop(3)

    class Late(flower.Grid):  # type: ignore[name-defined,misc]
        looks = 0

        def get_nodes(self) -> Any:
            self.looks += 1
            if self.looks == 5:
                waiting[3] = late
            return super().get_nodes()

    strategy = RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0)
    strategy.start(Late(waiting), arrays, num_rounds=2, train_config=ConfigRecord({}))
    assert strategy.reports[0].clients == ("0", "1", "2", "3")


@pytest.mark.parametrize("left", [False, True], ids=["still listed", "left during the round"])
def test_after_a_resume_it_does_not_wait_for_the_dead(
    left: bool, tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    """A node may be dead and still be asked, because Flower lists it for another minute."""
    file = tmp_path / "c.safetensors"
    nodes = federation(flower)
    nodes[2] = lambda message: None

    class Counted(flower.Grid):  # type: ignore[name-defined,misc]
        looks = 0

        def get_nodes(self) -> Any:
            self.looks += 1
            if left and self.looks == 2:  # the first look was for training
                nodes.pop(2, None)
            return super().get_nodes()

    def go_on(rounds: int) -> Any:
        grid = Counted(nodes)
        strategy = RuleStrategy(
            fedhaw.FedAvg(), checkpoint=file, round_deadline=0.05, nodes_timeout=2.0
        )
        strategy.start(grid, arrays, num_rounds=rounds)
        return grid, strategy

    go_on(1)
    nodes.pop(2, None)
    grid, strategy = go_on(2)
    assert grid.looks == 2  # one before training and one before evaluation: nobody to wait for
    assert strategy.reports[0].clients == ("0", "1", "3")


def test_after_a_resume_a_client_that_stays_away_keeps_its_weight(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    """With a database the SuperLink lists the nodes it had before, whether they live or not."""
    file = tmp_path / "c.safetensors"
    nodes = federation(flower)
    RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0).start(
        flower.Grid(nodes), arrays, num_rounds=1
    )
    nodes[2] = lambda message: None
    strategy = RuleStrategy(
        fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0, round_deadline=0.05
    )
    strategy.start(flower.Grid(nodes), arrays, num_rounds=2)
    assert list(strategy.reports[0].lost) == ["2"]
    assert strategy.reports[0].weights["2"] == pytest.approx(12 / 46)


def test_a_checkpoint_of_a_matrix_with_gaps_makes_no_copy_of_it(tmp_path: Path) -> None:
    """FedHAW keeps the learnt columns of a wider matrix, ten models or more of them."""
    matrix = np.random.default_rng(0).random((8, 300_000), dtype=np.float32)
    kept = Checkpoint(
        server_round=1,
        model=matrix[0, :-100],
        rest={},
        state={"previous": matrix[:, :-100]},
        state_description="",
        examples={},
        nodes={},
        cohort=0,
        arrays=[],
        rule="",
    )
    tracemalloc.start()
    save(kept, tmp_path / "c.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < matrix.nbytes / 8
    found = load(tmp_path / "c.safetensors")
    assert found is not None
    np.testing.assert_array_equal(found.state["previous"], matrix[:, :-100])

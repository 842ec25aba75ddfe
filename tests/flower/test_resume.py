"""A server killed after any round goes on as if nothing had happened."""

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray
from tests.checkpoints import first_format

import fedhaw
from fedhaw.checkpoints import read
from fedhaw.files import FileWriteError
from fedhaw.flower import CheckpointError, RuleStrategy
from fedhaw.history import History
from fedhaw.rules import Rule

RULES: list[Rule[Any]] = [
    fedhaw.FedAvg(),
    fedhaw.FedAdp(),
    fedhaw.FedHyperG(),
    fedhaw.FedLWS(),
    fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1),
    fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1, history_dtype="bfloat16"),
    fedhaw.FedHAWAuto(),
    fedhaw.FedAvgM(),
    fedhaw.MIFA(),
    fedhaw.Clipped(fedhaw.FedAdam()),
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
    run = History.read(tmp_path / "history.jsonl")
    assert (run.name, run.rule, run.seed, run.finished) == ("field trial", "fedhaw", 3, True)
    assert run.clients == ("0", "1", "2", "3")
    np.testing.assert_allclose(run.accuracy, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(run.shares.sum(), 1.0)
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert records[0]["clients"]["2"] == {"examples": 12}
    assert records[3]["lost"] == {"1": "exception: boom"}
    assert "loss" not in records[3]["evaluation"]
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


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty"])
def test_a_damaged_checkpoint_gives_way_or_is_said_clearly(
    damage: str, rounds: int, tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    file = tmp_path / "c.safetensors"

    def strategy() -> RuleStrategy:
        return RuleStrategy(fedhaw.FedAvg(), checkpoint=file, fraction_evaluate=0.0)

    grid = flower.Grid(federation(flower))
    strategy().start(grid, arrays, rounds)
    last = tmp_path / f"c-{rounds:06d}.safetensors"
    data = bytearray(last.read_bytes())
    if damage == "cut":
        data = data[:-5]
    elif damage == "flipped":
        data[-3] ^= 1
    elif damage == "foreign":
        data = bytearray(b"something else entirely")
    else:
        data = bytearray()
    last.write_bytes(data)
    if rounds == 1:
        with pytest.raises(CheckpointError, match=r"c-000001\.safetensors.*resume_from=0"):
            strategy().start(grid, arrays, 2)
    else:
        assert sorted(strategy().start(grid, arrays, 3).train_metrics_clientapp) == [2, 3]


def test_the_last_rounds_are_kept_and_can_be_gone_back_to(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    file, history = tmp_path / "c.safetensors", tmp_path / "history.jsonl"

    def strategy(resume_from: int | None = None) -> RuleStrategy:
        return RuleStrategy(
            fedhaw.FedHAWAuto(),
            fraction_evaluate=0.0,
            checkpoint=file,
            history=history,
            resume_from=resume_from,
        )

    def run(rounds: int, resume_from: int | None = None) -> list[int]:
        result = strategy(resume_from).start(flower.Grid(federation(flower)), arrays, rounds)
        return sorted(result.train_metrics_clientapp)

    def kept() -> list[str]:
        return sorted(file.name for file in tmp_path.glob("c*"))

    numbered = [f"c-00000{number}.safetensors" for number in range(9)]
    assert run(5) == [1, 2, 3, 4, 5]
    assert kept() == [*numbered[3:6], "c.safetensors"]
    assert file.read_bytes() == (tmp_path / numbered[5]).read_bytes()
    whole = file.read_bytes()

    assert run(3, resume_from=3) == []
    assert kept() == [numbered[3], "c.safetensors"]
    assert file.read_bytes() == (tmp_path / numbered[3]).read_bytes()
    assert len(History.read(history).records) == 3
    assert run(5) == [4, 5]
    assert file.read_bytes() == whole

    with pytest.raises(CheckpointError, match=r"no checkpoint of round 2 .* only 3, 4, 5; choose"):
        run(6, resume_from=2)
    assert run(1, resume_from=0) == [1]
    assert kept() == [numbered[1], "c.safetensors"]


def test_two_runs_do_not_share_a_checkpoint(
    tmp_path: Path, flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def start(evaluate: Any = None) -> None:
        RuleStrategy(
            fedhaw.FedAvg(), checkpoint=tmp_path / "c.safetensors", fraction_evaluate=0.0
        ).start(flower.Grid(federation(flower)), arrays, 1, evaluate_fn=evaluate)

    def second(server_round: int, _: ArrayRecord) -> None:
        with pytest.raises(FileWriteError, match="Another run is writing"):
            start()

    start(second)
    start()


def test_a_full_disk_is_said_and_tried_again(
    tmp_path: Path,
    flower: SimpleNamespace,
    arrays: ArrayRecord,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = os.fsync

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def disk(server_round: int, _: ArrayRecord) -> None:
        monkeypatch.setattr("os.fsync", full if server_round in (2, 3) else working)

    def run(name: str, evaluate: Any) -> bytes:
        RuleStrategy(
            fedhaw.FedAvg(),
            fraction_evaluate=0.0,
            checkpoint=tmp_path / f"{name}.safetensors",
            checkpoint_every=2,
            history=tmp_path / f"{name}.jsonl",
        ).start(flower.Grid(federation(flower)), arrays, 6, evaluate_fn=evaluate)
        return (tmp_path / f"{name}.safetensors").read_bytes()

    assert run("full", disk) == run("whole", None)
    assert caplog.text.count("No space left on device") == 2
    # Round 2 was due and round 3 tried again; round 4, due anyway, is the first that was written.
    numbers = sorted(file.name for file in tmp_path.glob("full-*"))
    assert numbers == ["full-000004.safetensors", "full-000006.safetensors"]
    assert len(History.read(tmp_path / "full.jsonl").records) == 6
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_changed_rule_goes_on_only_where_that_is_meant(
    tmp_path: Path,
    flower: SimpleNamespace,
    arrays: ArrayRecord,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(rounds: int, rule: Rule[Any], resume_from: int | None = None) -> str:
        caplog.clear()
        strategy = RuleStrategy(
            rule,
            checkpoint=tmp_path / "c.safetensors",
            fraction_evaluate=0.0,
            resume_from=resume_from,
        )
        strategy.start(flower.Grid(federation(flower)), arrays, rounds)
        return caplog.text

    old, new = fedhaw.FedLWS(clip=(0.5, 2.0)), fedhaw.FedLWS(clip=(0.5, 3.0))
    run(1, old)
    assert "is not what it was" not in run(2, old)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("c*")}
    with pytest.raises(CheckpointError) as refusal:
        run(3, new)
    change = "rule.clip: [0.5, 2.0] vs [0.5, 3.0]"
    assert str(refusal.value).endswith(
        f"belongs to another rule ({change}: there vs here); go on with this one by resume_from=2, "
        "choose another file, or start afresh with resume_from=0."
    )
    assert before == {file.name: file.read_bytes() for file in tmp_path.glob("c*")}
    assert change in run(3, new, resume_from=2)
    assert "is not what it was" not in run(4, new)
    monkeypatch.setattr(fedhaw.FedLWS, "version", 2, raising=False)
    with pytest.raises(CheckpointError, match="version: 1 vs 2"):
        run(5, new)


def test_a_checkpoint_of_the_first_version_goes_on(
    tmp_path: Path, flower: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "checkpoint.safetensors"
    shutil.copy(first_format.FOLDER / file.name, file)

    def run(name: str) -> RuleStrategy:
        strategy = RuleStrategy(
            first_format.RULE, fraction_evaluate=0.0, checkpoint=tmp_path / name
        )
        nodes = {k: flower.moving(k, 0.125 * k, 8 + k) for k in range(3)}
        strategy.start(flower.Grid(nodes), first_format.initial_arrays(), 6)
        return strategy

    old, new = run(file.name), run("new.safetensors")
    assert [report.round for report in old.reports] == [4, 5]
    assert "is not what it was" not in caplog.text
    assert read(file)["model"].arrays[""] == pytest.approx(
        read(tmp_path / "new.safetensors")["model"].arrays[""]
    )
    assert old.state.step == pytest.approx(new.state.step)
    file.write_bytes((first_format.FOLDER / file.name).read_bytes().replace(b"?", b"!"))
    with pytest.raises(CheckpointError, match="checksum"):
        read(file)


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
    assert strategy.cohorts[0] == ("0", "1", "2", "3")


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
    assert strategy.cohorts[0] == ("0", "1", "3")


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

"""A run that was stopped ends as if it had not been."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.checkpoints import first_format
from tests.simulation.every_rule import RULES, same, without_times

from fedhaw import FedAvg, FedHAW, FedhawError, Round, simulate
from fedhaw.data import Dataset
from fedhaw.history import History, HistoryError, RoundRecord, parse
from fedhaw.rules.base import Client
from fedhaw.simulation import CheckpointError, InvalidSimulation

Simulate = Callable[..., History]

HAW = RULES["fedhaw"]


@dataclass(frozen=True)
class Renewed(FedHAW):
    """FedHAW under its own name, with other arithmetic."""

    version: ClassVar[int] = 2


Renewed.__name__ = "FedHAW"


class Stop(Exception):
    """Raised from within a run to end it."""


def stop_after(round_index: int) -> Callable[[RoundRecord], None]:
    def callback(record: RoundRecord) -> None:
        if record.round == round_index:
            raise Stop

    return callback


def stored(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize("stand_in", ["global", "last", "none"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_goes_on_bit_for_bit(
    run: Simulate, tmp_path: Path, rule: Any, stand_in: str
) -> None:
    settings = {"uplink": 0.8, "cohort": 3, "rounds": 9, "stand_in": stand_in}
    whole = run(rule, **settings)
    for moment in (1, 4, 5, 6) if stand_in == "global" else (1, 6):
        with pytest.raises(Stop):
            run(rule, **settings, out=tmp_path, checkpoint_every=2, on_round=stop_after(moment))
    heard: list[int] = []
    resumed = run(
        rule, **settings, out=tmp_path, checkpoint_every=2,
        on_round=lambda record: heard.append(record.round),
    )  # fmt: skip
    assert heard == [6, 7, 8]
    assert same(whole, resumed)
    read = History.read(tmp_path)
    assert without_times(read) == without_times(whole)
    assert read.finished


def test_a_finished_run_is_not_run_again(run: Simulate, tmp_path: Path) -> None:
    first = run(HAW, out=tmp_path)
    content = (tmp_path / "history.jsonl").read_bytes()
    again = run(HAW, out=tmp_path, on_round=stop_after(0))
    assert same(first, again)
    assert again.path == tmp_path / "history.jsonl"
    assert (tmp_path / "history.jsonl").read_bytes() == content


def test_a_finished_run_can_be_made_longer_but_not_shorter(run: Simulate, tmp_path: Path) -> None:
    run(HAW, out=tmp_path, rounds=5)
    assert same(run(HAW, out=tmp_path, rounds=8), run(HAW, rounds=8))
    history = tmp_path / "history.jsonl"
    kinds = [json.loads(line)["kind"] for line in history.read_text().splitlines()]
    assert kinds == ["run", *["round"] * 5, "run", *["round"] * 3, "end"]
    assert History.read(tmp_path).rounds_planned == 8
    assert json.loads(history.read_text().splitlines()[0])["config"]["rounds"] == 5
    with pytest.raises(InvalidSimulation, match="has already done 8"):
        run(HAW, out=tmp_path, rounds=5)


def test_the_last_two_checkpoints_are_kept(run: Simulate, tmp_path: Path) -> None:
    run(HAW, out=tmp_path, rounds=7, checkpoint_every=2)
    assert stored(tmp_path) == ["round-000005.safetensors", "round-000006.safetensors"]


def test_slow_rounds_have_a_checkpoint_each(
    run: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["fedhaw.simulation.run"], "LONG", 0.0)
    with pytest.raises(Stop):
        run(HAW, out=tmp_path, rounds=7, checkpoint_every=100, on_round=stop_after(2))
    assert stored(tmp_path) == ["round-000001.safetensors", "round-000002.safetensors"]


def test_without_resume_a_folder_is_used_anew(run: Simulate, tmp_path: Path) -> None:
    run(HAW, out=tmp_path, rounds=8)
    fresh = run(FedAvg(), out=tmp_path, rounds=3, resume=False)
    assert same(fresh, run(FedAvg(), rounds=3))
    assert stored(tmp_path) == ["round-000002.safetensors"]
    assert len(History.read(tmp_path).records) == 3


def break_file(file: Path, how: str) -> None:
    content = file.read_bytes()
    middle = len(content) - 40
    flipped = bytearray(content)
    flipped[middle] ^= 4
    damaged = {
        "truncated": content[:middle],
        "a bit flipped in a tensor": bytes(flipped),
        "metadata changed": content.replace(b'\\"seed\\": 0', b'\\"seed\\": 7', 1),
        "empty": b"",
        "noise": bytes(range(256)) * 8,
    }  # fmt: skip
    assert damaged[how] != content
    file.write_bytes(damaged[how])


DAMAGES = ["truncated", "a bit flipped in a tensor", "metadata changed", "empty", "noise"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    run: Simulate, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Stop):
        run(HAW, out=tmp_path, rounds=8, checkpoint_every=2, on_round=stop_after(6))
    break_file(tmp_path / "checkpoints" / "round-000005.safetensors", how)
    heard: list[int] = []
    resumed = run(
        HAW, out=tmp_path, rounds=8, checkpoint_every=2,
        on_round=lambda record: heard.append(record.round),
    )  # fmt: skip
    assert heard[0] == 4
    assert same(resumed, run(HAW, rounds=8))
    assert "round-000005.safetensors is damaged" in caplog.text


def test_when_all_checkpoints_are_damaged_the_way_out_is_named(
    run: Simulate, tmp_path: Path
) -> None:
    run(HAW, out=tmp_path, rounds=4, checkpoint_every=2)
    history = (tmp_path / "history.jsonl").read_bytes()
    for name in stored(tmp_path):
        break_file(tmp_path / "checkpoints" / name, "truncated")
    with pytest.raises(
        CheckpointError, match=r"Every checkpoint .* start afresh in another folder"
    ):
        run(HAW, out=tmp_path, rounds=4)
    assert (tmp_path / "history.jsonl").read_bytes() == history
    assert same(run(HAW, out=tmp_path, rounds=4, resume=False), run(HAW, rounds=4))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"eta": 0.2}, r"client_update\.eta: 0\.1 vs 0\.2"),
        ({"seed": 1}, "seed: 0 vs 1"),
        ({"uplink": 0.3}, r"uplink\.p_e: not set vs 0\.3"),
        ({"model": "mlp-6"}, "model: 'mlp-5' vs 'mlp-6'"),
        ({"cohort": 2}, "cohort: None vs 2"),
        ({"stand_in": "none"}, "stand_in: 'global' vs 'none'"),
        ({"split_seed": 9}, "parts: "),
        ({"client_update": "adam"}, r"client_update\.optimiser: 'sgd' vs 'adam'"),
        ({"engine": "stacked"}, "arithmetic: 'one by one' vs 'stacked'"),
        ({"rule": FedHAW(0.1, 1e-2, 2e-1)}, r"rule\.eta_lambda: 0\.1 vs 0\.2"),
        ({"rule": Renewed(0.1, 1e-2, 1e-1)}, r"rule\.version: 1 vs 2"),
        ({"rule": FedAvg()}, r"rule\.name: 'fedhaw' vs 'fedavg'"),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_another_configuration_is_refused_and_the_difference_named(
    run: Simulate, tmp_path: Path, change: dict[str, Any], named: str, stopped: bool
) -> None:
    settings: dict[str, Any] = {"rule": HAW, "rounds": 2, "out": tmp_path}
    if stopped:  # before the first checkpoint
        with pytest.raises(Stop):
            run(**settings, on_round=stop_after(0))
    else:
        run(**settings)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(CheckpointError, match=named):
        run(**settings | change)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_a_trace_may_have_moved_but_not_changed(run: Simulate, tmp_path: Path) -> None:
    for name, lines in (("a", "0,1\n"), ("b", "0,1\n"), ("c", "0,2\n")):
        (tmp_path / f"{name}.csv").write_text("round,client\n" + lines)
    run(HAW, out=tmp_path / "run", uplink=tmp_path / "a.csv", rounds=2)
    longer = run(HAW, out=tmp_path / "run", uplink=tmp_path / "b.csv", rounds=3)
    assert longer.records[0].lost == {"1": "uplink"}
    with pytest.raises(CheckpointError, match=r"uplink\.losses: "):
        run(HAW, out=tmp_path / "run", uplink=tmp_path / "c.csv", rounds=3)


def test_a_history_that_was_shortened_is_noticed(run: Simulate, tmp_path: Path) -> None:
    run(HAW, out=tmp_path, rounds=4)
    file = tmp_path / "history.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]))
    with pytest.raises(HistoryError, match=r"holds 2 rounds, but the checkpoint .* after 4"):
        run(HAW, out=tmp_path, rounds=6)


@pytest.mark.parametrize("end", [b"\0" * 50 + b"\n", b'{"kind":"round","round":9}\n', b"\xff\n\n"])
@pytest.mark.parametrize("finished", [False, True])
def test_garbage_behind_the_checkpoint_does_no_harm(
    run: Simulate, tmp_path: Path, end: bytes, finished: bool
) -> None:
    if finished:
        run(HAW, out=tmp_path, checkpoint_every=2)
    else:
        with pytest.raises(Stop):
            run(HAW, out=tmp_path, checkpoint_every=2, on_round=stop_after(3))
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(end)
    assert same(run(HAW, out=tmp_path, checkpoint_every=2), run(HAW))
    assert History.read(tmp_path).finished


def test_a_file_that_is_no_history_is_left_alone(run: Simulate, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text("my notes\n")
    with pytest.raises(HistoryError, match="not a history"):
        run(HAW, out=tmp_path)
    assert file.read_text() == "my notes\n"


def test_two_runs_do_not_share_a_folder(run: Simulate, tmp_path: Path) -> None:
    def second(record: dict[str, Any]) -> None:
        with pytest.raises(FedhawError, match="Another run is writing"):
            run(HAW, out=tmp_path)

    run(HAW, out=tmp_path, rounds=2, on_round=second)


def test_a_run_of_the_first_version_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(first_format.FOLDER / "run", folder)
    heard: list[int] = []
    settings = {**first_format.simulation(), "length_limit": 0}  # it refused no update
    with pytest.raises(CheckpointError, match=r"length_limit: not set vs 10\.0"):
        simulate(**first_format.simulation(), out=folder)
    resumed = simulate(**settings, out=folder, on_round=lambda r: heard.append(r.round))
    assert heard == [4, 5]
    whole = simulate(**settings)
    assert resumed.model == pytest.approx(whole.model)
    assert stored(folder) == ["round-000003.safetensors", "round-000005.safetensors"]


DRIVER = Path(__file__).parent / "killed_runs.py"


def test_killed_at_many_random_moments_it_ends_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DRIVER), "forks", str(tmp_path)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kills"] >= 5
    assert report["different outcomes"] == 1, report


def test_killed_and_taken_up_by_a_fresh_process_it_ends_the_same(tmp_path: Path) -> None:
    command = [sys.executable, str(DRIVER), "once", str(tmp_path / "killed")]
    with subprocess.Popen(command) as process:
        history = tmp_path / "killed" / "history.jsonl"
        deadline = time.monotonic() + 120
        while not (history.exists() and history.read_bytes().count(b"\n") > 9):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
    assert not History.read(history).finished
    for folder in ("killed", "whole"):
        subprocess.run([*command[:-1], str(tmp_path / folder)], check=True, timeout=120)
    killed, whole = History.read(tmp_path / "killed"), History.read(tmp_path / "whole")
    assert killed.finished
    assert without_times(killed) == without_times(whole)
    last = "checkpoints/round-000039.safetensors"
    assert (tmp_path / "killed" / last).read_bytes() == (tmp_path / "whole" / last).read_bytes()


@dataclass(frozen=True)
class Seen:
    seen: object = frozenset()
    clients: tuple[Client, ...] = ()
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Forgetful:
    """FedAvg, with a state that no file can hold: at once, or once it has seen somebody."""

    start: object

    def init(self) -> Seen:
        return Seen(self.start)

    def aggregate(self, state: Seen, current: Round) -> tuple[Any, Seen]:
        model, _ = FedAvg().aggregate(FedAvg().init(), current)
        return model, Seen({*current.clients}, current.clients, current.shares)


@pytest.mark.parametrize(("start", "rounds"), [(set(), 0), (None, 1)])
def test_a_state_that_cannot_be_stored_is_noticed_early(
    tiny: Dataset, tmp_path: Path, start: object, rounds: int
) -> None:
    seen: list[RoundRecord] = []
    with pytest.raises(CheckpointError, match=r"The field seen of Seen is .*, which cannot be"):
        simulate(
            Forgetful(start), tiny, model="logistic", clients=4, split="iid", rounds=9,
            out=tmp_path / "run", on_round=seen.append,
        )  # fmt: skip
    history = tmp_path / "run" / "history.jsonl"
    assert (len(parse(history).records) if history.exists() else 0) == rounds

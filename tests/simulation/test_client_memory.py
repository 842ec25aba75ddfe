"""Clients that remember: who moves on, what is kept on the disk, and what a damaged file gets."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedhaw import CheckpointError, FedAvg, FedHAW, History
from fedhaw.checkpoints import read
from fedhaw.clients import ClientAlgorithm, ClientResult, ClientRound, ReceivedUploads, Start
from fedhaw.data import Dataset
from fedhaw.simulation import Federation, InvalidSimulation
from fedhaw.simulation.client_memory import ClientMemories
from fedhaw.uplink import RecordedUplink

Simulate = Callable[..., History]
DRIVER = Path(__file__).parent / "killed_runs.py"

OWN = '''\
from dataclasses import dataclass

import torch

from fedhaw.clients import ClientAlgorithm, ClientResult, LocalUpdate, Start


@dataclass(frozen=True)
class Counting(ClientAlgorithm):
    """Plain steps, and a memory of how often an upload of this client has arrived."""

    steps: LocalUpdate

    def init(self, parameters):
        return Start({"sum": torch.zeros(1)}, {"count": torch.zeros(1)}, {"count": torch.zeros(1)})

    def train(self, given):
        count = given.memory["count"] + 1
        trained = given.descend(self.steps)
        return ClientResult(
            trained.model, trained.loss, {"count": count}, {"count": count}, {"count": count}
        )

    def absorb(self, server, received, model):
        return model, {"sum": server["sum"] + sum(up["count"] for up in received.up)}
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:Counting"


@pytest.mark.parametrize("engine", ["sequential", "processes"])
def test_a_clients_memory_moves_on_only_when_its_upload_arrived(
    run: Simulate, own: str, engine: str, tmp_path: Path
) -> None:
    # Client 0 is lost in rounds 0 and 2, client 1 in round 2.
    lost = RecordedUplink(frozenset({(0, 0), (2, 0), (2, 1)}))
    history = run(
        FedAvg(), clients=2, uplink=lost, rounds=5, client_update=own, engine=engine, workers=2,
        out=tmp_path / "run",
    )  # fmt: skip
    counts = [record.metrics.get("client/count") for record in history.records]
    assert counts == [1.0, (1 + 2) / 2, None, (2 + 3) / 2, (3 + 4) / 2]
    parts = read(tmp_path / "run/checkpoints/round-000004.safetensors")
    assert parts["server"].arrays["sum"] == 1 + (1 + 2) + (2 + 3) + (3 + 4)


def test_memory_that_is_written_to_in_place_is_the_clients_own(
    run: Simulate, own: str, tmp_path: Path
) -> None:
    """`count += 1` instead of `count = count + 1`: lost uploads and other clients must not show."""
    (tmp_path / "hasty.py").write_text(OWN.replace('count"] + 1', 'count"].add_(1)'))
    lost = RecordedUplink(frozenset({(0, 0), (2, 0), (2, 1)}))
    updates = (own, f"{tmp_path / 'hasty.py'}:Counting")
    careful, hasty = (
        run(FedAvg(), clients=2, uplink=lost, rounds=5, client_update=update) for update in updates
    )
    counts = [[r.metrics.get("client/count") for r in h.records] for h in (careful, hasty)]
    assert counts[0] == counts[1]


ALGORITHMS: dict[str, dict[str, Any]] = {
    "scaffold": {"client_update": "scaffold", "momentum": 0.4},
    "feddyn": {"client_update": "feddyn", "clip": 1.0, "eta_decay": 0.9},
    "fednova": {"client_update": "fednova"},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_all_engines_give_the_same(run: Simulate, name: str) -> None:
    settings = {**ALGORITHMS[name], "uplink": 0.6, "clients": 5, "cohort": 3, "workers": 2}
    one, several, stacked = (
        run(FedHAW(0.1, 1e-2, 1e-1), engine=engine, **settings).model
        for engine in ("sequential", "processes", "stacked")
    )
    assert one is not None
    assert several is not None
    assert stacked is not None
    assert one.tobytes() == several.tobytes()
    np.testing.assert_allclose(stacked, one, rtol=1e-4, atol=1e-6)


def test_what_travels_is_counted(run: Simulate) -> None:
    plain = run(FedAvg(), rounds=1).records[0].bytes
    beside = run(FedAvg(), rounds=1, client_update="scaffold").records[0].bytes
    assert beside == {way: 2 * number for way, number in plain.items()}


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_killed_at_every_write_it_ends_the_same(tmp_path: Path, algorithm: str) -> None:
    """SIGKILL before every single write of a run, each run then taken up to its end."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), "writes", str(tmp_path), algorithm],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kills"] >= 30
    assert report["different outcomes"] == 1, report


def test_killed_at_random_moments_it_ends_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DRIVER), "forks", str(tmp_path), "scaffold"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["different outcomes"] == 1, report


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for start in range(4096, len(content), 64):
        content[start] ^= 1
    file.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (_flip, "its checksum does not match"),
    "cut short": (lambda file: file.write_bytes(file.read_bytes()[:4200]), "cut short"),
    "foreign": (lambda file: file.write_bytes(b"x" * 9000), "not such a file"),
    "missing": (lambda file: file.unlink(), "No such file"),
    "of another run": (
        lambda file: file.write_bytes(re.sub(rb'"token": "\w', b'"token": "_', file.read_bytes())),
        "belongs to another run",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_memory_file_that_cannot_be_used_gets_a_sentence(
    run: Simulate, tmp_path: Path, damage: str
) -> None:
    settings: dict[str, Any] = {"client_update": "scaffold", "checkpoint_every": 2}
    run(FedAvg(), rounds=4, out=tmp_path, **settings)
    spoil, reason = DAMAGES[damage]
    spoil(tmp_path / "checkpoints" / "clients.rows")
    with pytest.raises(CheckpointError, match=rf"clients.rows cannot be used \(.*{reason}"):
        run(FedAvg(), rounds=6, out=tmp_path, **settings)
    afresh = run(FedAvg(), rounds=6, out=tmp_path, resume=False, **settings)
    assert len(afresh.records) == 6


def test_a_run_without_memories_leaves_no_file(run: Simulate, tmp_path: Path) -> None:
    run(FedAvg(), client_update="scaffold", out=tmp_path)
    run(FedAvg(), out=tmp_path, resume=False)
    assert not (tmp_path / "checkpoints" / "clients.rows").exists()


def test_rows_of_kept_checkpoints_are_never_written_to(tmp_path: Path) -> None:
    """Also: the file stays as small as two checkpoints and the present allow."""
    example, K = {"v": torch.zeros(5)}, 6
    memories = ClientMemories(example, tmp_path / "rows")
    random = np.random.default_rng(0)
    values = np.zeros(K)
    kept: list[tuple[Any, Any]] = []
    for t in range(60):
        cohort = random.permutation(K)[:4].tolist()
        reserved = dict(zip(cohort, memories.reserve(4), strict=True))
        moved = {client for client in cohort if random.random() < 0.7}
        for client, row in reserved.items():
            memories.place(row)["v"].fill_(t + client / 10)
        memories.settle(reserved, moved)
        for client in moved:
            values[client] = t + client / 10
        assert [memories.of(k)["v"][0].item() for k in range(K)] == pytest.approx(values)
        if t % 3 == 2:
            kept = [*kept[-1:], (memories.pack(), values.copy())]
            memories.saved()
        for part, then in kept:
            again = ClientMemories(example, tmp_path / "rows", part)  # verifies its checksums
            assert [again.of(k)["v"][0].item() for k in range(K)] == pytest.approx(then)
            again.close()
    assert (tmp_path / "rows").stat().st_size <= 4096 + 64 * (3 * K + 4) * 5 // 4
    memories.close()


class Wrong(ClientAlgorithm):
    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def init(self, parameters: int) -> Start:
        return Start({"s": torch.zeros(2)}, {"m": torch.zeros(2)}, {"u": torch.zeros(2)})

    def train(self, given: ClientRound) -> ClientResult:
        good = {"u": torch.zeros(2)}, {"m": torch.zeros(2)}
        up, memory = self.parts.get("up", good[0]), self.parts.get("memory", good[1])
        return self.parts.get("result") or ClientResult(given.global_model, 1.0, up, memory)

    def absorb(self, server: Any, received: ReceivedUploads, model: Any) -> Any:
        return self.parts.get("model", model), self.parts.get("server", server)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no result": ({"result": 3}, "return a ClientResult"),
    "up": ({"up": {}}, "up has nothing, but init declares 'u'"),
    "shape": ({"memory": {"m": torch.zeros(3)}}, r"memory\['m'\] is torch.float32 of shape \(3,\)"),
    "kind": ({"memory": {"m": 5}}, "not a tensor"),
    "model": ({"model": None}, "absorb of Wrong returned no torch.float32 model"),
    "server": ({"server": {}}, "another server memory than init declares"),
    "diverged": ({"model": torch.full((53,), torch.inf)}, "no longer finite after Wrong"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_an_algorithm_is_one_sentence(run: Simulate, mistake: str) -> None:
    parts, sentence = MISTAKES[mistake]
    with pytest.raises(InvalidSimulation, match=sentence):
        run(FedAvg(), client_update=Wrong(**parts), rounds=2)


def test_up_that_is_not_finite_is_lost(run: Simulate) -> None:
    history = run(FedAvg(), rounds=1, client_update=Wrong(up={"u": torch.full((2,), torch.nan)}))
    assert set(history.records[0].lost.values()) == {"not finite"}


def test_the_stacked_engine_says_what_it_cannot_stack(run: Simulate) -> None:
    with pytest.raises(InvalidSimulation, match="stackable"):
        run(FedAvg(), client_update=Wrong(), engine="stacked")


def test_settings_are_said_once(tiny: Dataset, own: str) -> None:
    from fedhaw.settings import fill

    settings = {"data": tiny, "split": "iid", "clients": 4, "eta": 0.3}
    federation = Federation.prepare(
        fill({**settings, "client_update": "scaffold", "momentum": 0.2}, objects=True)
    )
    assert federation.eta == 0.3
    assert federation.config()["client_update"]["steps"]["momentum"] == 0.2
    mine = Federation.prepare(fill({**settings, "client_update": own}, objects=True))
    assert mine.eta == 0.3

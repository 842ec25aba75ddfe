"""Uploads that an uplink delays: they count rounds later, faded by their age."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedhaw
from fedhaw.late import FADE
from fedhaw.rules import Round
from fedhaw.simulation import InvalidSimulation
from fedhaw.uplink import LateUplink, RecordedUplink

SPLIT = [range(0, 30), range(30, 60), range(60, 90), range(90, 120)]


def moving(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
    """A client that adds 1 to everything, whatever its data."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    return 0.0


def moved(run: Any, uplink: object, **settings: Any) -> tuple[float, Any]:
    """How far the model went, and the history."""
    history = run(fedhaw.FedAvg(), split=SPLIT, client_update=moving, uplink=uplink, **settings)
    start = run(fedhaw.FedAvg(), split=SPLIT, client_update=moving, rounds=1).model - 1
    return float((history.model - start).mean()), history


def test_it_counts_when_it_comes_by_its_age(run: Any) -> None:
    lost = frozenset((t, 2) for t in (1, 2, 3))
    far, history = moved(run, RecordedUplink(lost, late=frozenset({(1, 2, 2)})))
    assert far == pytest.approx(5 - 3 / 4 + FADE**2 / 4, rel=1e-5)
    assert history.lost.tolist() == [0, 1, 1, 0, 0]
    notes = [record.note for record in history.records]
    assert notes[3] == f"client 2: its update of round 1 came late and counts {FADE**2:.2g}"
    assert [note for t, note in enumerate(notes) if t != 3] == [None] * 4


@pytest.mark.parametrize(
    ("lost", "late", "worth"),
    [
        ({1}, {(1, 2, 2)}, 4 + 3 / 4),  # its own upload of round 3 is newer
        ({1, 2, 3, 4}, {(1, 2, 3), (2, 2, 2)}, 5 - 1 + FADE**2 / 4),  # the newer one counts
        ({1, 2, 3, 4}, {(1, 2, 3), (2, 2, 1)}, 5 - 1 + FADE / 4),  # what is older comes too late
        ({0, 1, 2, 3, 4}, {(0, 2, 6)}, 5 - 5 / 4),  # later than anybody waits
    ],
)
def test_only_the_newest_counts(
    run: Any, lost: set[int], late: set[tuple[int, int, int]], worth: float
) -> None:
    uplink = RecordedUplink(frozenset((t, 2) for t in lost), late=frozenset(late))
    assert moved(run, uplink)[0] == pytest.approx(worth, rel=1e-5)


def test_who_was_not_drawn_counts_too(run: Any) -> None:
    """Half of the clients are asked, everybody is a round late."""
    far, history = moved(run, LateUplink(1.0, 1.0), cohort=2, rounds=8, seed=3)
    late = [record for record in history.records if record.note]
    assert any(len(record.weights) > 2 for record in late)
    assert all(f"came late and counts {FADE:.2g}" in str(record.note) for record in late)
    assert far > 0


@pytest.mark.parametrize("rule", [fedhaw.FedAvg(), fedhaw.FedHAWAuto()])
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_resumed_run_has_them_on_their_way(
    run: Any, rule: Any, engine: str, tmp_path: Path
) -> None:
    settings = {"uplink": "late", "loss_rate": 0.9, "burst": 2.0, "engine": engine, "cohort": 3}
    whole = run(rule, rounds=12, **settings)
    assert sum("came late" in str(record.note) for record in whole.records) > 2
    run(rule, rounds=6, out=tmp_path, **settings)
    resumed = run(rule, rounds=12, out=tmp_path, **settings)
    np.testing.assert_array_equal(whole.model, resumed.model)
    assert [r.note for r in whole.records] == [r.note for r in resumed.records]


@dataclass(frozen=True)
class Watching:
    """FedAvg, which writes down who was late."""

    seen: list[list[object]]

    def init(self) -> Any:
        return fedhaw.FedAvg().init()

    def aggregate(self, state: Any, current: Round) -> Any:
        self.seen.append(
            [name for name, late in zip(current.clients, current.late, strict=True) if late]
        )
        return fedhaw.FedAvg().aggregate(state, current)


def test_the_rule_is_told_who_is_late(run: Any) -> None:
    lost = frozenset((t, 2) for t in (1, 2, 3))
    watching = Watching([])
    run(watching, split=SPLIT, uplink=RecordedUplink(lost, late=frozenset({(1, 2, 2)})))
    assert watching.seen == [[], [], [], [2], []]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [fedhaw.FedAvg(), fedhaw.FedHAWAuto()])
def test_late_is_worth_no_less_than_lost(rule: Any) -> None:
    """FedHAW-auto ended 7 points lower on average while late updates fed its momentum."""

    def accuracy(uplink: str, seed: int) -> float:
        history = fedhaw.simulate(
            rule, "mnist-5k", alpha=0.1, eta=0.01, loss_rate=0.8, uplink=uplink, seed=seed
        )
        return 100 * float(np.mean(history.accuracy[-10:]))

    gains = [accuracy("late", seed) - accuracy("letter", seed) for seed in range(4)]
    assert np.mean(gains) > -1


def test_late_beats_lost(run: Any) -> None:
    lost = run(fedhaw.FedAvg(), uplink="letter", loss_rate=1.0, rounds=12)
    late = run(fedhaw.FedAvg(), uplink="late", loss_rate=1.0, burst=1.0, rounds=12)
    assert late.lost.sum() < lost.lost.sum()
    assert late.records[-1].evaluation["loss"] < lost.records[-1].evaluation["loss"]


def test_clients_with_a_memory_cannot_wait_for_theirs(run: Any) -> None:
    with pytest.raises(InvalidSimulation, match="LateUplink delays uploads"):
        run(fedhaw.FedAvg(), uplink="late", loss_rate=0.5, client_update="scaffold")


def test_an_uplink_must_say_how_late_everybody_is(run: Any) -> None:
    class Short(LateUplink):
        def delays(self, *asked: Any) -> Any:
            return np.ones(1, dtype=np.int64)

    class Broken(LateUplink):
        def delays(self, *asked: Any) -> Any:
            return np.full(len(asked[-1]), 1.5)

    with pytest.raises(InvalidSimulation, match=r"delays returned int64 of shape \(1,\)"):
        run(fedhaw.FedAvg(), uplink=Short(1.0))
    with pytest.raises(InvalidSimulation, match=r"delays returned float64 .* a whole number"):
        run(fedhaw.FedAvg(), uplink=Broken(1.0))

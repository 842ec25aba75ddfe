"""The curves of runs that benchmarks keep: back as they were, and of the rule that is asked for."""

from pathlib import Path

import pytest
from kept_curves import Curve, KeptCurves

import fedhaw


@pytest.fixture(scope="module")
def history() -> fedhaw.History:
    return fedhaw.simulate(
        fedhaw.FedAvgM(0.5), "mnist-5k", clients=3, rounds=4, evaluate_every=2, model="logistic"
    )


def test_curves_are_read_as_they_were_written(tmp_path: Path, history: fedhaw.History) -> None:
    place, curve = tmp_path / "curves.jsonl.gz", Curve.of(history)
    assert list(curve.accuracies) == [1, 3]
    assert curve.accuracies[3] == pytest.approx(history.accuracy[3], abs=1e-5)
    KeptCurves.read(place).write({"first": curve})
    KeptCurves.read(place).write({"second": curve})
    kept = KeptCurves.read(place)
    assert kept.curves == {"first": curve, "second": curve}
    assert kept.find("first", fedhaw.FedAvgM(0.5)) == curve
    assert kept.find("first", fedhaw.FedAvgM(0.9)) is None
    assert kept.find("third", fedhaw.FedAvgM(0.5)) is None


def test_an_earlier_arithmetic_is_another_rule(
    history: fedhaw.History, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = Curve.of(history)
    assert curve.is_of(fedhaw.FedAvgM(0.5))
    monkeypatch.setattr(fedhaw.FedAvgM, "version", 99, raising=False)
    assert not curve.is_of(fedhaw.FedAvgM(0.5))

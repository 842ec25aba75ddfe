"""Batch norm's running statistics are averaged, never learnt, whichever rule is run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedhaw import FedAdp, FedAvg, FedHAW, FedhawError, FedHyperG, FedLAW, FedLWS, History, Round
from fedhaw.data import Dataset, from_arrays

Simulate = Callable[..., History]

NORMALISED = 6 * 5 + 5 + 5 + 5 + 5 * 3 + 3
"""Parameters of `normalised`; ten running statistics follow them."""

RULES: dict[str, Any] = {
    "fedavg": FedAvg(),
    "fedadp": FedAdp(),
    "fedhyper": FedHyperG(),
    "fedlws": FedLWS(),
    "fedlaw": lambda federation: FedLAW(federation.proxy_losses(), epochs=3),
    "fedhaw": FedHAW(0.1, 1e-3, 1e-2),
}


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture
def unscaled(tiny: Dataset) -> Dataset:
    """Inputs, and with them running variances, that dwarf every parameter."""
    return from_arrays(tiny.x_train * 30, tiny.y_train, tiny.x_test * 30, tiny.y_test)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_parameters_do_not_depend_on_what_happens_to_the_statistics(
    run: Simulate, unscaled: Dataset, rule: Any
) -> None:
    # Training normalises by the batch either way, so only a rule that reads statistics could tell.
    settings: dict[str, Any] = {"data": unscaled, "model": normalised, "uplink": 0.3, "rounds": 6}
    batch = run(rule, buffers="batch", **settings)
    average = run(rule, buffers="average", **settings)
    assert batch.model is not None
    assert average.model is not None
    assert len(batch.model) == NORMALISED
    assert len(average.model) == NORMALISED + 10
    np.testing.assert_allclose(average.model[:NORMALISED], batch.model, rtol=1e-3, atol=1e-5)
    assert set(average.metrics) == set(batch.metrics)
    for name, values in batch.metrics.items():
        np.testing.assert_allclose(average.metrics[name], values, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(average.weights, batch.weights, rtol=1e-3)
    assert (average.model[-5:] > 1).all()  # the variances have left their start, upwards


def test_statistics_are_averaged_with_the_rules_weights(run: Simulate) -> None:
    class Watching:
        """Weighs everybody alike; notes what it is shown."""

        def init(self) -> Any:
            return FedAvg().init()

        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            assert current.client_models.shape == (4, NORMALISED)
            assert current.layers is not None
            assert current.layers[-1].stop == NORMALISED
            return FedAvg().aggregate(state, current)

    def fixed(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
        module.get_buffer("1.running_var").fill_(float(len(y)))
        return 1.0

    parts = [np.arange(10), np.arange(10, 40), np.arange(40, 60), np.arange(60, 120)]
    settings: dict[str, Any] = {"model": normalised, "split": parts, "clients": None, "rounds": 1}
    history = run(Watching(), client_update=fixed, buffers="average", **settings)
    assert history.model is not None
    expected = (10 * 10 + 30 * 30 + 20 * 20 + 60 * 60) / 120
    np.testing.assert_allclose(history.model[-5:], expected, rtol=1e-6)


@pytest.mark.parametrize("stand_in", ["global", "last"])
def test_a_run_with_statistics_resumes_bit_for_bit(
    run: Simulate, tmp_path: Path, stand_in: str
) -> None:
    settings: dict[str, Any] = {
        "model": normalised, "buffers": "average", "uplink": 0.4, "stand_in": stand_in,
    }  # fmt: skip
    rule = FedHAW(0.1, 1e-3, 1e-2)
    whole = run(rule, rounds=6, **settings)
    run(rule, rounds=3, out=tmp_path, **settings)
    resumed = run(rule, rounds=6, out=tmp_path, **settings)
    assert whole.model is not None
    assert resumed.model is not None
    assert whole.model.tobytes() == resumed.model.tobytes()


def test_a_gamma_that_is_not_finite_is_null_in_the_history(run: Simulate, tmp_path: Path) -> None:
    class State:
        metrics: ClassVar = {"gamma": (0.5, float("nan"))}

        def __init__(self, state: Any) -> None:
            self.clients, self.weights = state.clients, state.weights

    class Odd:
        def init(self) -> Any:
            return FedAvg().init()

        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            model, state = FedAvg().aggregate(state, current)
            return model, State(state)

    history = run(Odd(), rounds=1)
    assert history.records[0].metrics == {"gamma": (0.5, None)}
    np.testing.assert_array_equal(history.metrics["gamma"], [[0.5, np.nan]])


def test_sizes_that_leave_one_sample_lose_nobody(run: Simulate, tiny: Dataset) -> None:
    # 81 test samples leave 65 to evaluate on; every client holds 33, in batches of 32.
    random = np.random.default_rng(2)
    x, labels = random.normal(size=(4 * 33 + 81, 6)).astype(np.float32), np.arange(213) % 3
    data = from_arrays(x[81:], labels[81:], x[:81], labels[:81])
    settings: dict[str, Any] = {"data": data, "model": normalised, "split": "iid", "batch": 32}
    histories = [run(FedAvg(), engine=e, **settings) for e in ("sequential", "stacked")]
    for history in histories:
        assert history.lost.tolist() == [0] * 5
    one_by_one, stacked = (np.asarray(history.model) for history in histories)
    np.testing.assert_allclose(stacked, one_by_one, rtol=1e-3, atol=1e-5)


def test_a_test_set_of_one_sample_is_refused_before_training(run: Simulate, tiny: Dataset) -> None:
    data = from_arrays(tiny.x_train, tiny.y_train, tiny.x_test[:1], tiny.y_test[:1], classes=3)
    with pytest.raises(FedhawError, match=r"cannot be evaluated|proxy set"):
        run(FedAvg(), data=data, model=normalised)

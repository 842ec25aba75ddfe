"""Engines by name, the choice of one, and federations that do not fit together."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.simulation.engines.conftest import prepared
from torch import nn

from fedhaw.errors import FedhawError
from fedhaw.models import cnn, mlp
from fedhaw.simulation import Federation
from fedhaw.simulation.engines import TrainingRound, create
from fedhaw.simulation.engines.choice import choose


def federation(
    module: nn.Module, shape: tuple[int, ...], per_client: int, **settings: Any
) -> Federation:
    x, y = torch.zeros(per_client * 2, *shape), torch.zeros(per_client * 2, dtype=torch.int64)
    parts = [np.arange(per_client), np.arange(per_client, 2 * per_client)]
    return prepared(module, x, y, parts, **settings)


def test_auto_stacks_perceptrons_and_spreads_other_modules() -> None:
    def letter(**settings: Any) -> str:
        return choose(federation(mlp((784, 128, 128, 10)), (784,), 600, **settings))

    assert letter(workers=1) == letter(workers=2) == "stacked", "the same bits on any machine"
    for alone in ({"deadline": 1.0}, {"epochs": 10}):
        assert letter(workers=2, **alone) == "processes"
        assert letter(workers=1, **alone) == "sequential"
    images = federation(cnn((1, 8, 8), 10), (1, 8, 8), 50, batch=10, workers=2)
    assert choose(images) == "processes"


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("threads", {}, "engine is 'threads'; it must be one of"),
        ("processes", {"workers": 0}, "workers is 0"),
        ("sequential", {"deadline": 0.0}, "deadline is 0.0"),
        ("stacked", {"deadline": 1.0}, "deadline"),
        ("stacked", {"update": lambda *_: 0.0}, "LocalUpdate"),
        ("sequential", {"module": mlp((7, 4))}, r"on samples of shape \(6,\)"),
        ("sequential", {"parts": [np.array([0, 1000])]}, "samples are 0 to 150"),
        ("stacked", {"module": nn.Sequential(nn.Linear(6, 4), nn.Dropout())}, "batch of models"),
    ],
)
def test_what_does_not_fit_is_refused(
    make: Any, name: str, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(FedhawError, match=says):
        make(name, **settings)


@pytest.mark.parametrize("cohort", [(0, 6), (-1,), (2, 2)])
def test_cohorts_of_strangers_or_doubles_are_refused(make: Any, cohort: tuple[int, ...]) -> None:
    with pytest.raises(FedhawError, match="client"):
        make("sequential").train(*cohort)


def test_what_cannot_be_sent_to_workers_is_refused(make: Any) -> None:
    generator = (i for i in range(3))
    with pytest.raises(Exception, match="cannot be sent"):
        make("processes", update=lambda *_: next(generator))


def test_an_engine_trains_from_whatever_model_it_is_given() -> None:
    module = mlp((2, 2))
    samples = (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), [np.arange(4)])
    engine = create(prepared(module, *samples))
    out = torch.empty(1, 6)
    (report,) = engine.train(TrainingRound(0, torch.zeros(6), [0], out.unbind()))
    engine.close()
    assert report.loss == pytest.approx(0.6931, abs=1e-4)

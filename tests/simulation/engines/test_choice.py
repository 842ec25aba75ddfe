"""Engines by name, the choice of one, and federations that do not fit together."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedhaw.clients import named
from fedhaw.models import Layout, cnn, mlp
from fedhaw.simulation.engines import InvalidFederation, create
from fedhaw.simulation.engines.choice import choose
from fedhaw.simulation.engines.federation import Federation


def federation(
    module: nn.Module, shape: tuple[int, ...], per_client: int, batch: int
) -> Federation:
    x, y = torch.zeros(per_client * 2, *shape), torch.zeros(per_client * 2, dtype=torch.int64)
    parts = [np.arange(per_client), np.arange(per_client, 2 * per_client)]
    return Federation.of(module, Layout.of(module), named("sgd", batch=batch), x, y, parts, 0)


def test_auto_stacks_tiny_steps_and_spreads_large_ones() -> None:
    logistic = federation(mlp((784, 10)), (784,), 60, 10)
    letter = federation(mlp((784, 128, 128, 10)), (784,), 600, 64)
    images = federation(cnn((1, 8, 8), 10), (1, 8, 8), 50, 10)
    assert choose(logistic, workers=2) == "stacked"
    assert choose(logistic, workers=2, deadline=1.0) == "sequential"
    assert choose(letter, workers=2) == "processes"
    assert choose(letter, workers=1) == "sequential"
    assert choose(images, workers=2) == "processes"


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("threads", {}, "no engine named"),
        ("processes", {"workers": 0}, "workers"),
        ("sequential", {"deadline": 0.0}, "deadline"),
        ("stacked", {"deadline": 1.0}, "deadline"),
        ("stacked", {"update": lambda *_: 0.0}, "LocalUpdate"),
        ("sequential", {"module": mlp((7, 4))}, r"cannot take samples of shape \(6,\)"),
        ("sequential", {"parts": [np.array([0, 1000])]}, "only 151 samples"),
        ("sequential", {"y": torch.zeros(3, dtype=torch.int64)}, "3 labels"),
        ("stacked", {"module": nn.Sequential(nn.Linear(6, 4), nn.Dropout())}, "batch of models"),
    ],
)
def test_what_does_not_fit_is_refused(
    make: Any, name: str, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidFederation, match=says):
        make(name, **settings)


@pytest.mark.parametrize("cohort", [(0, 6), (-1,), (2, 2)])
def test_cohorts_of_strangers_or_doubles_are_refused(make: Any, cohort: tuple[int, ...]) -> None:
    with pytest.raises(InvalidFederation, match="client"):
        make("sequential").train(*cohort)


def test_what_cannot_be_sent_to_workers_is_refused(make: Any) -> None:
    generator = (i for i in range(3))
    with pytest.raises(Exception, match="cannot be sent"):
        make("processes", update=lambda *_: next(generator))


def test_create_is_the_public_way_in() -> None:
    module = mlp((2, 2))
    engine = create(
        "auto",
        module=module,
        layout=Layout.of(module),
        update=named("sgd"),
        x=torch.zeros(4, 2),
        y=torch.zeros(4, dtype=torch.int64),
        parts=[np.arange(4)],
        seed=0,
    )
    out = torch.empty(1, 6)
    (report,) = engine.train(0, torch.zeros(6), [0], out)
    engine.close()
    assert report.loss == pytest.approx(0.6931, abs=1e-4)

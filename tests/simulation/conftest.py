"""A federation so small that a round takes a few milliseconds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedhaw.data import Dataset, from_arrays
from fedhaw.simulation import History, simulate

Simulate = Callable[..., History]


def make_tiny(clients: int = 4, samples: int = 120) -> Dataset:
    """Three classes of noisy points; `clients` is only to keep each of them above nothing."""
    random = np.random.default_rng(5)
    centres = random.normal(size=(3, 6))
    total = max(samples, 3 * clients) + 60
    labels = np.arange(total) % 3
    points = (centres[labels] + random.normal(size=(total, 6))).astype(np.float32)
    return from_arrays(points[60:], labels[60:], points[:60], labels[:60], name="tiny")


@pytest.fixture(scope="session")
def tiny() -> Dataset:
    return make_tiny()


@pytest.fixture
def run(tiny: Dataset) -> Simulate:
    """`simulate` on the tiny federation: 4 clients, a small MLP, large steps."""
    settings: dict[str, Any] = {
        "data": tiny,
        "model": "mlp-5",
        "clients": 4,
        "split": "dirichlet",
        "alpha": 0.5,
        "eta": 0.1,
        "batch": 8,
        "rounds": 5,
        "engine": "sequential",
    }
    return partial(simulate, **settings)

"""A small federation that every engine's tests train."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.clients import ClientUpdate, named
from fedhaw.data import Dataset
from fedhaw.models import mlp
from fedhaw.settings import fill
from fedhaw.simulation import Federation
from fedhaw.simulation.engines import ClientReport, Engine, TrainingRound, create

SIZES = (23, 40, 7, 64, 16, 1)
"""Samples of each client: ragged, with full batches, a single sample, and equal tails."""

Make = Callable[..., "Trained"]


class Trained:
    """An engine together with where its clients start and what they trained."""

    def __init__(self, federation: Federation):
        self.engine: Engine = create(federation)
        self.start = federation.initial_model

    def train(self, *cohort: int, round_index: int = 0) -> tuple[Tensor, list[ClientReport]]:
        cohort = cohort or tuple(range(len(SIZES)))
        out = torch.full((len(cohort), len(self.start)), torch.nan)
        reports = self.engine.train(TrainingRound(round_index, self.start, cohort, out.unbind()))
        assert [report.client for report in reports] == list(cohort)
        return out, reports


def prepared(
    module: nn.Module, x: Tensor, y: Tensor, parts: list[NDArray[np.int64]], **settings: Any
) -> Federation:
    """A federation of these samples, (N, F) or (N, C, H, W), good or bad; the test set is good."""
    samples = x.numpy() if x.ndim < 4 else np.moveaxis(x.numpy(), 1, -1)
    test = np.zeros((4, *samples.shape[1:]), dtype=np.float32)
    labels = np.zeros(4, dtype=np.int64)
    dataset = Dataset("samples", samples, y.numpy(), test, labels, 4)
    given = {"data": dataset, "model": module, "split": parts, "seed": 1, **settings}
    return Federation.prepare(fill(given, objects=True))


@pytest.fixture
def make() -> Iterator[Make]:
    """Make engines that are closed when the test ends."""
    made: list[Trained] = []

    def make_one(
        name: str,
        module: nn.Module | None = None,
        update: ClientUpdate | None = None,
        shape: tuple[int, ...] = (6,),
        **settings: Any,
    ) -> Trained:
        if module is None:
            torch.manual_seed(5)
            module = mlp((6, 5, 4))
        generator = torch.Generator().manual_seed(11)
        ends = np.cumsum(SIZES)
        given = {
            "x": torch.randn(sum(SIZES), *shape, generator=generator),
            "y": torch.randint(0, 4, (sum(SIZES),), generator=generator),
            "parts": [np.arange(end - n, end) for n, end in zip(SIZES, ends, strict=True)],
            "client_update": update or named("sgd", eta=0.1, epochs=2, batch=8),
            "engine": name,
            **settings,
        }
        made.append(Trained(prepared(module, **given)))
        return made[-1]

    yield make_one
    for each in made:
        each.engine.close()

"""A small federation that every engine's tests train."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedhaw.clients import ClientUpdate, named
from fedhaw.models import Layout, mlp
from fedhaw.simulation.engines import ClientReport, Engine, create

SIZES = (23, 40, 7, 64, 16, 1)
"""Samples of each client: ragged, with full batches, a single sample, and equal tails."""

Make = Callable[..., "Trained"]


class Trained:
    """An engine together with where its clients start and what they trained."""

    def __init__(self, name: str, module: nn.Module, layout: Layout, settings: dict[str, Any]):
        generator = torch.Generator().manual_seed(11)
        shape = settings.pop("shape", (6,))
        x = torch.randn(sum(SIZES), *shape, generator=generator)
        y = torch.randint(0, 4, (sum(SIZES),), generator=generator)
        ends = np.cumsum(SIZES)
        parts = [np.arange(end - size, end) for size, end in zip(SIZES, ends, strict=True)]
        settings = {"x": x, "y": y, "parts": parts, "seed": 1, **settings}
        self.engine: Engine = create(name, module=module, layout=layout, **settings)
        self.start = layout.flatten(module)

    def train(self, *cohort: int, round_index: int = 0) -> tuple[Tensor, list[ClientReport]]:
        cohort = cohort or tuple(range(len(SIZES)))
        out = torch.full((len(cohort), len(self.start)), torch.nan)
        reports = self.engine.train(round_index, self.start, cohort, out)
        assert [report.client for report in reports] == list(cohort)
        return out, reports


@pytest.fixture
def make() -> Iterator[Make]:
    """Make engines that are closed when the test ends."""
    made: list[Trained] = []

    def make_one(
        name: str,
        module: nn.Module | None = None,
        update: ClientUpdate | None = None,
        buffers: Any = "batch",
        **settings: Any,
    ) -> Trained:
        if module is None:
            torch.manual_seed(5)
            module = mlp((6, 5, 4))
        update = update or named("sgd", eta=0.1, epochs=2, batch=8)
        layout = Layout.of(module, buffers)
        made.append(Trained(name, module, layout, {"update": update, **settings}))
        return made[-1]

    yield make_one
    for each in made:
        each.engine.close()

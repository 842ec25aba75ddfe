"""Only the head is trained: on the real features it must learn breeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedhaw.data import load, scaled
from fedhaw.models.perceptron import head


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer over matrices this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_head_learns_breeds_from_frozen_features(data_sets: Path) -> None:
    data = load(data_sets / "dogs_vit_features.npz")
    x_train, x_test = map(torch.from_numpy, scaled(data))
    y_train, y_test = map(torch.from_numpy, (data.y_train, data.y_test))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = head(features=data.input_shape[0], classes=data.classes)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(5):
            for batch in torch.split(torch.randperm(len(x_train)), 64):
                optimiser.zero_grad()
                loss = cross_entropy(model(x_train[batch]), y_train[batch])
                torch.autograd.backward(loss)
                optimiser.step()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    assert accuracy > 0.8  # always the commonest breed would be right in about one of twenty

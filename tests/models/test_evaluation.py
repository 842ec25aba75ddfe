"""Evaluation: the right numbers, and the right batches for batch norm."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.models import Evaluator, Layout, mlp


def test_loss_and_accuracy_over_many_batches() -> None:
    module = mlp((3, 2))
    layout = Layout.of(module)
    x, y = torch.randn(2500, 3), torch.randint(0, 2, (2500,))
    result = Evaluator(module, layout)(layout.flatten(module), x, y)
    logits = module(x)
    assert result["loss"] == pytest.approx(cross_entropy(logits, y).item(), rel=1e-5)
    assert result["accuracy"] == float((logits.argmax(1) == y).double().mean())


def test_batch_norm_follows_the_layouts_choice() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    module.get_buffer("1.running_mean").fill_(0.7)
    x, y = torch.randn(100, 3), torch.randint(0, 2, (100,))

    by_batch = Layout.of(module, "batch")
    result = Evaluator(module, by_batch)(by_batch.flatten(module), x, y)
    module.train()
    expected = torch.cat([module(x[:64]), module(x[64:])])
    assert result["loss"] == pytest.approx(cross_entropy(expected, y).item(), rel=1e-5)

    running = Layout.of(module, "average")
    result = Evaluator(module, running)(running.flatten(module), x, y)
    expected = module.eval()(x)
    assert result["loss"] == pytest.approx(cross_entropy(expected, y).item(), rel=1e-5)


def test_a_lone_last_sample_is_normalised_with_the_batch_before_it() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    layout = Layout.of(module)
    x, y = torch.randn(129, 3), torch.randint(0, 2, (129,))
    result = Evaluator(module, layout)(layout.flatten(module), x, y)
    expected = torch.cat([module(x[:64]), module(x[64:])])
    assert result["loss"] == pytest.approx(cross_entropy(expected, y).item(), rel=1e-5)
    # Without batch norm nothing is joined, and running statistics need no batch.
    assert Evaluator(mlp((3, 2)), Layout.of(mlp((3, 2)))).batches(1001) == [1000, 1]
    assert Evaluator(module, Layout.of(module, "average")).batches(65) == [65]


class _Keeping(nn.Module):
    """A module that keeps something while it computes, as a user's own may."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        self.inner(x).sum().item()  # time for another thread
        return torch.as_tensor(self.inner(self.kept))


def test_batches_side_by_side_give_the_same_bits() -> None:
    torch.manual_seed(0)
    module, x, y = _Keeping(), torch.randn(9500, 6), torch.arange(9500) % 3
    layout, threads = Layout.of(module), torch.get_num_threads()
    model = layout.flatten(module)
    one, several = Evaluator(module, layout), Evaluator(module, layout, threads=4)
    for _ in range(3):
        assert torch.equal(one.outputs(model, x), several.outputs(model, x))
    assert one(model, x, y) == several(model, x, y)
    assert torch.get_num_threads() == threads


def test_a_module_that_fails_leaves_the_number_of_threads_alone() -> None:
    module, threads = nn.Linear(6, 3), torch.get_num_threads()
    layout = Layout.of(module)
    evaluator = Evaluator(module, layout, threads=2)
    torch.set_num_threads(3)
    try:
        with pytest.raises(RuntimeError):
            evaluator.outputs(layout.flatten(module), torch.zeros(9500, 5))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)

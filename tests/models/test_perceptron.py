"""The closed form against autograd, for one model and for many."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from fedhaw.models import Layout, mlp
from fedhaw.models.learner import ModuleLearner, PerceptronLearner, learner
from fedhaw.models.perceptron import PerceptronPass, perceptron_sizes, transpose_first_layer
from fedhaw.models.stack import ModuleStack, PerceptronStack

sizes_of_perceptrons = st.lists(st.integers(1, 9), min_size=2, max_size=5)


@given(sizes_of_perceptrons, st.integers(1, 7), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_closed_form_gradient_equals_autograd(sizes: list[int], batch: int, seed: int) -> None:
    torch.manual_seed(seed)
    module = mlp(sizes)
    layout = Layout.of(module)
    model = layout.flatten(module)
    x, y = torch.randn(batch, sizes[0]), torch.randint(0, sizes[-1], (batch,))
    closed, reference = (
        PerceptronLearner(tuple(sizes)),
        ModuleLearner(module, layout, cross_entropy),
    )
    closed.gradient.fill_(torch.nan)  # whatever an earlier step left must not shine through
    for each in (closed, reference):
        each.start(model)
    torch.testing.assert_close(closed.backward(x, y).sum(), reference.backward(x, y).sum())
    gradient = torch.empty_like(model)
    transpose_first_layer(sizes, closed.gradient, out=gradient, back=True)
    torch.testing.assert_close(gradient, reference.gradient, rtol=1e-4, atol=1e-6)
    assert torch.equal(closed.model(), model)
    for each in (closed, reference):
        each.descend(x, y, 0.1)
    torch.testing.assert_close(closed.model(), reference.model(), rtol=1e-4, atol=1e-6)


@given(sizes_of_perceptrons, st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_a_stack_equals_its_models_one_by_one(
    sizes: list[int], height: int, batch: int, seed: int
) -> None:
    torch.manual_seed(seed)
    layout = Layout.of(mlp(sizes))
    models = torch.stack([layout.flatten(mlp(sizes)) for _ in range(height)])
    x = torch.randn(height, batch, sizes[0])
    y = torch.randint(0, sizes[-1], (height, batch))
    stacks = (
        PerceptronStack(tuple(sizes)),
        ModuleStack(mlp(sizes), layout, cross_entropy, torch.device("cpu")),
    )
    for stack in stacks:
        gradient = torch.full_like(models, torch.nan)
        stack.start(models.clone())
        loss = stack.passes(slice(0, height), batch).gradient(x, y, gradient)
        for k in range(height):
            alone = PerceptronPass(sizes, models[k].clone(), batch)
            expected = torch.empty(layout.size)
            torch.testing.assert_close(loss[k].sum(), alone.gradient(x[k], y[k], expected).sum())
            torch.testing.assert_close(gradient[k], expected, rtol=1e-4, atol=1e-6)


def test_extreme_logits_stay_finite() -> None:
    model = PerceptronLearner((2, 3))
    model.start(torch.tensor([1e4, 0, -1e4, 0, 0, 0, 0, 0, 0]))
    loss = model.backward(torch.tensor([[1.0, 1.0]]), torch.tensor([1]))
    assert loss == 2e4 or loss == 1e4
    assert bool(model.gradient.isfinite().all())


class Subclass(nn.Linear):
    pass


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (mlp((4, 3, 2)), (4, 3, 2)),
        (mlp((4, 2)), (4, 2)),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (4, 3, 2)),
        (nn.Linear(4, 2), None),
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), None),
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), None),
        (nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), None),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), None),
        (nn.Sequential(Subclass(4, 2)), None),
        (nn.Sequential(), None),
        (nn.Sequential(nn.Linear(4, 2), nn.Flatten()), None),
    ],
)
def test_only_plain_perceptrons_are_recognised(
    module: nn.Module, sizes: tuple[int, ...] | None
) -> None:
    assert perceptron_sizes(module) == sizes


def test_frozen_tied_and_hooked_perceptrons_go_through_autograd() -> None:
    frozen = mlp((4, 3, 2))
    frozen[1].requires_grad_(False)
    tied = mlp((3, 3, 3))
    tied[3].weight = tied[1].weight
    hooked = mlp((4, 3, 2))
    hooked.register_forward_hook(lambda module, inputs, output: output * 2)
    for module in (frozen, tied, hooked):
        made = learner(module, Layout.of(module), cross_entropy)
        assert isinstance(made, ModuleLearner)

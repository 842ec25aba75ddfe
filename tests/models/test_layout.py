"""The flat vector: order, layers, buffers, and the ways in and out."""

import pytest
import torch
from torch import nn

from fedhaw.models import Layout, UnsupportedModule, mlp, resnet18
from fedhaw.models.flat import FlatModule


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def test_layers_hold_weight_and_bias_together_in_order() -> None:
    layout = Layout.of(mlp((12, 8, 8, 5)))
    assert [layer.stop - layer.start for layer in layout.layers] == [104, 72, 45]
    assert [entry.name for entry in layout.entries][:2] == ["1.weight", "1.bias"]
    assert layout.size == layout.parameters == 221


def test_flatten_and_load_are_inverse() -> None:
    module, other = resnet18(10, width=4), resnet18(10, width=4)
    for buffers in ("batch", "average"):
        layout = Layout.of(module, buffers)
        vector = layout.flatten(module)
        layout.load(other, vector)
        assert torch.equal(layout.flatten(other), vector)


def test_travelling_buffers_come_after_the_parameters_and_counters_stay_out() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    layout = Layout.of(module, "average")
    names = [entry.name for entry in layout.entries]
    assert names == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
    ]  # fmt: skip
    assert layout.parameters == 24
    assert layout.size == 28
    assert layout.layers == (slice(0, 20), slice(20, 24), slice(24, 28))
    assert Layout.of(module, "batch").size == 24


def test_shared_parameters_count_once_and_frozen_ones_stay_out() -> None:
    assert Layout.of(Tied()).size == 15
    module = mlp((4, 3, 2))
    module[1].requires_grad_(False)
    assert Layout.of(module).size == 8


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.ReLU(), "no trainable parameters"),
        (mlp((2, 2)).double(), "float32"),
        (nn.LazyLinear(3), "no shape yet"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_modules_that_cannot_be_laid_out_are_refused(module: nn.Module, says: str) -> None:
    with pytest.raises(UnsupportedModule, match=says):
        Layout.of(module)


def test_unknown_buffer_choice_is_refused() -> None:
    with pytest.raises(UnsupportedModule, match="batch"):
        Layout.of(mlp((2, 2)), "running")  # type: ignore[arg-type]


def test_a_flat_module_is_a_window_onto_its_vector() -> None:
    template = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    layout = Layout.of(template, "average")
    flat = FlatModule(template, layout)
    flat.start(torch.arange(layout.size, dtype=torch.float32))
    assert flat.module[0].weight[0, 1] == 1.0  # type: ignore[index]
    flat.module.train()(torch.randn(8, 3)).sum().backward()
    # Batch norm moved its running statistics, in the vector too; the template is untouched.
    assert not torch.equal(flat.vector[24:], torch.arange(24.0, 32.0))
    assert torch.equal(template.get_buffer("1.running_mean"), torch.zeros(4))


def test_resident_counters_do_not_pass_from_client_to_client() -> None:
    template = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None))
    layout = Layout.of(template, "average")
    flat = FlatModule(template, layout)
    flat.module.train()(torch.randn(8, 3))
    flat.start(layout.flatten(template))
    assert int(flat.module[1].num_batches_tracked) == 0  # type: ignore[index]

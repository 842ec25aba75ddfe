"""How modules compute: the order of an image's numbers in memory, and the precision."""

import copy
from typing import Self, Unpack

import cloudpickle
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw import simulate
from fedhaw.data import from_arrays
from fedhaw.models import Layout, build
from fedhaw.models.flat import FlatModule, prefers_channels_last
from fedhaw.models.learner import ModuleLearner, closed_form_sizes
from fedhaw.models.precision import in_bfloat16
from fedhaw.rules import FedAvg
from fedhaw.settings import Settings

CHANNELS_LAST = torch.channels_last
Vector = NDArray[np.float32]


class Viewing(nn.Module):
    """A user's module that wants its images in the usual order, and notes in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.linear = nn.Linear(4 * 64, 3)
        self.seen: list[bool] = []

    def asking(self) -> Self:
        """The same with what ``to(memory_format=torch.channels_last)`` does to its weight."""
        weight = self.convolution.weight
        weight.data = weight.data.contiguous(memory_format=CHANNELS_LAST)
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.is_contiguous(memory_format=CHANNELS_LAST))
        y = self.convolution(x)
        out: Tensor = self.linear(y.view(len(y), -1) if y.is_contiguous() else y.flatten(1))
        return out


def images(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, 8, 8, generator=generator)
    return x, torch.randint(0, 3, (count,), generator=generator)


def small(name: str = "resnet18-4") -> nn.Module:
    torch.manual_seed(0)
    return build(name, (3, 8, 8), 3)


def test_our_convolutions_get_channels_last_and_others_only_when_they_ask() -> None:
    assert prefers_channels_last(small())
    assert prefers_channels_last(small("cnn"))
    assert not prefers_channels_last(small("mlp"))
    assert not prefers_channels_last(Viewing())
    assert prefers_channels_last(Viewing().asking())
    # One channel lies in both orders, and asks for neither.
    one_channel = Viewing()
    one_channel.convolution = nn.Conv2d(1, 4, 3)
    assert not prefers_channels_last(one_channel)


@pytest.mark.parametrize("asks", [False, True])
def test_a_module_sees_images_in_the_order_it_prefers(asks: bool) -> None:
    module = Viewing().asking() if asks else Viewing()
    flat = FlatModule(module, Layout.of(module))
    flat(images(5)[0])
    assert flat.module.seen == [asks]


def test_channels_last_changes_last_bits_only() -> None:
    module, (x, y) = small(), images(16)
    learner = ModuleLearner(module, Layout.of(module), cross_entropy)
    loss = learner.backward(x, y) / 16
    plain = cross_entropy(module(x), y)
    gradients = torch.autograd.grad(plain, list(module.parameters()))
    expected = torch.cat([gradient.reshape(-1) for gradient in gradients])
    assert torch.allclose(loss, plain.detach())
    assert torch.allclose(learner.gradient, expected, atol=1e-5)


def test_bfloat16_keeps_names_values_and_float32_where_it_counts() -> None:
    module, (x, y) = small("cnn"), images(16)
    half = in_bfloat16(module)
    assert "forward" not in vars(module), "the user's own module is left as it is"
    assert Layout.of(half) == Layout.of(module)
    learner = ModuleLearner(half, Layout.of(half), cross_entropy)
    learner.backward(x, y)
    exact = ModuleLearner(module, Layout.of(module), cross_entropy)
    exact.backward(x, y)
    assert learner.gradient.dtype == half(x).dtype == torch.float32
    difference = torch.dist(learner.gradient, exact.gradient) / exact.gradient.norm()
    assert 1e-4 < difference < 0.1


def test_copies_and_pickles_compute_in_bfloat16_with_their_own_parameters() -> None:
    half, x = in_bfloat16(small("mlp")), images(4)[0]
    before = half(x)
    for other in (copy.deepcopy(half), cloudpickle.loads(cloudpickle.dumps(half))):
        assert torch.equal(other(x), before)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        assert not other(x).any()
        assert torch.equal(half(x), before)


def test_the_closed_form_is_not_taken_for_a_perceptron_in_bfloat16() -> None:
    assert closed_form_sizes(small("mlp"), cross_entropy) is not None
    assert closed_form_sizes(in_bfloat16(small("mlp")), cross_entropy) is None


def test_workers_give_the_same_bits_in_bfloat16_and_histories_say_so() -> None:
    x, y = images(60)
    data = from_arrays(x.numpy(), y.numpy(), x[:20].numpy(), y[:20].numpy())

    def run(**given: Unpack[Settings]) -> tuple[Vector, bool]:
        given |= {"model": "resnet18-4", "split": "iid", "clients": 3, "rounds": 2, "batch": 16}
        history = simulate(FedAvg(), data, **given)
        assert history.model is not None
        return history.model, "precision" in history.run.config

    alone, told = run(engine="sequential", precision="bfloat16")
    assert told
    np.testing.assert_array_equal(
        run(engine="processes", workers=2, precision="bfloat16")[0], alone
    )
    exact, told = run(engine="sequential")
    assert not told, "runs from before the setting go on"
    assert (alone != exact).any()

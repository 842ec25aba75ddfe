"""Models by name."""

import pytest
import torch

from fedhaw.models import Layout, UnsupportedModule, build, head, resnet18


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("mlp", (1, 28, 28), 10, 118_282),
        ("mlp-200-100", (28, 28), 10, 178_110),
        ("logistic", (1, 28, 28), 10, 7_850),
        ("head", (768,), 120, 293_496),
        ("resnet18-16", (3, 32, 32), 10, 701_466),
        ("cnn", (3, 32, 32), 10, 2_156_490),
        ("cnn", (28, 28), 10, 1_663_370),
    ],
)
def test_named_models_have_the_expected_size_and_take_their_samples(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    module = build(name, shape, classes)
    assert Layout.of(module).size == parameters
    x = torch.randn(2, *(shape if len(shape) != 2 else (1, *shape)))
    assert module(x).shape == (2, classes)


def test_resnet18_is_the_letters() -> None:
    assert Layout.of(resnet18(10)).size == 11_173_962
    assert Layout.of(head()).size == 293_496


@pytest.mark.parametrize("name", ["mlp-0", "mlp-a", "resnet18-3-4", "logistic-5", "vgg", ""])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedModule, match="no model named"):
        build(name, (3, 32, 32), 10)


def test_a_convolutional_model_needs_images() -> None:
    with pytest.raises(UnsupportedModule, match="images"):
        build("cnn", (768,), 10)

"""Models by name, fitted to a data set's samples and classes."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from torch import nn

from fedhaw.models.layout import UnsupportedModule
from fedhaw.models.perceptron import head, mlp
from fedhaw.models.resnet import cnn, resnet18
from fedhaw.names import is_reference, make, no_such


def build(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model by its name, with PyTorch's default initial values.

    Args:
        name: ``"mlp"`` (the letter's, hidden layers 128-128), ``"mlp-200-100"`` for other hidden
            widths, ``"logistic"``, ``"cnn"``, ``"resnet18"``, ``"resnet18-16"`` for another width
            than 64, ``"head"`` (768-256-256-120 on the letter's features), or where a user's own
            module, its class, or a function that makes it stands, such as `my_model.py:Net`.
            A class or function is given those of the next two that are among its parameters.
        input_shape: of one sample: (F,), (H, W) or (C, H, W).
        classes: how many logits come out.

    Raises:
        UnsupportedModule: there is no such model, or not for samples of this shape.
    """
    if is_reference(name):
        return make(name, nn.Module, input_shape=input_shape, classes=classes)
    kind, *rest = name.split("-")
    # Eighteen digits fit 64 bits; longer widths are no model's.
    if not all(width.isdecimal() and len(width) < 19 and int(width) > 0 for width in rest):
        raise _unknown(name)
    form = _FORMS.get(kind)
    if form is None or len(rest) > form.widths:
        raise _unknown(name)
    try:
        return form.make(input_shape, [int(width) for width in rest], classes)
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        raise UnsupportedModule(
            f"{name} does not fit this machine's memory; choose a smaller width."
        ) from error


@dataclass(frozen=True)
class _Form:
    """One kind of model.

    Attributes:
        make: (a sample's shape, widths, classes) -> module.
        widths: how many widths may follow its name.
        example: a name with widths, where there are any.
    """

    make: Callable[[tuple[int, ...], list[int], int], nn.Module]
    widths: int = 0
    example: str = ""


def _mlp(shape: tuple[int, ...], widths: list[int], classes: int) -> nn.Module:
    return mlp((prod(shape), *(widths or (128, 128)), classes))


def _logistic(shape: tuple[int, ...], _: list[int], classes: int) -> nn.Module:
    return mlp((prod(shape), classes))


def _cnn(shape: tuple[int, ...], _: list[int], classes: int) -> nn.Module:
    return cnn(_image_shape("cnn", shape), classes)


def _resnet18(shape: tuple[int, ...], widths: list[int], classes: int) -> nn.Module:
    channels, _, _ = _image_shape("resnet18", shape)
    return resnet18(classes, widths[0] if widths else 64, channels)


def _head(shape: tuple[int, ...], _: list[int], classes: int) -> nn.Module:
    return head(prod(shape), classes)


_FORMS = {
    "mlp": _Form(_mlp, 1000, "mlp-200-100"),
    "logistic": _Form(_logistic),
    "cnn": _Form(_cnn),
    "resnet18": _Form(_resnet18, 1, "resnet18-16"),
    "head": _Form(_head),
}

MODELS = tuple(name for kind, form in _FORMS.items() for name in (kind, form.example) if name)
"""The names `build` knows, with an example of each kind that may have widths."""


def _image_shape(name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise UnsupportedModule(
            f"{name} needs images of at least 4 x 4 pixels, (channels, height, width); these "
            f"samples have shape {shape}: choose an MLP."
        )
    return shape[0], shape[1], shape[2]


def _unknown(name: str) -> UnsupportedModule:
    return UnsupportedModule(no_such("model named", name, MODELS))

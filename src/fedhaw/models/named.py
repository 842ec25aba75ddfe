"""Models by name, fitted to a data set's samples and classes."""

from math import prod

from torch import nn

from fedhaw.models.layout import UnsupportedModule
from fedhaw.models.perceptron import head, mlp
from fedhaw.models.resnet import cnn, resnet18

FORMS = ("logistic", "mlp", "mlp-W-W-...", "cnn", "resnet18", "resnet18-W", "head")
"""The names `build` knows; W stands for a width."""


def build(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model by its name, with PyTorch's default initial values.

    Args:
        name: ``"mlp"`` (the letter's, hidden layers 128-128), ``"mlp-200-100"`` for other hidden
            widths, ``"logistic"``, ``"cnn"``, ``"resnet18"``, ``"resnet18-16"`` for another width
            than 64, or ``"head"`` (768-256-256-120 on the letter's features).
        input_shape: of one sample: (F,), (H, W) or (C, H, W).
        classes: how many logits come out.

    Raises:
        UnsupportedModule: there is no such model, or not for samples of this shape.
    """
    kind, *rest = name.split("-")
    # Eighteen digits fit 64 bits; longer widths are no model's.
    if not all(width.isdecimal() and len(width) < 19 and int(width) > 0 for width in rest):
        raise _unknown(name)
    widths = [int(width) for width in rest]
    try:
        return _built(name, kind, widths, input_shape, classes)
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        raise UnsupportedModule(
            f"{name} does not fit this machine's memory; choose a smaller width."
        ) from error


def _built(
    name: str, kind: str, widths: list[int], input_shape: tuple[int, ...], classes: int
) -> nn.Module:
    match kind, widths:
        case "mlp", _:
            return mlp((prod(input_shape), *(widths or (128, 128)), classes))
        case "logistic", []:
            return mlp((prod(input_shape), classes))
        case "head", []:
            return head(prod(input_shape), classes)
        case "cnn", []:
            return cnn(_image_shape(name, input_shape), classes)
        case "resnet18", [] | [_]:
            channels, _, _ = _image_shape(name, input_shape)
            width = widths[0] if widths else 64
            return resnet18(classes, width, channels)
    raise _unknown(name)


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
    return UnsupportedModule(
        f"There is no model named {name!r}; choose one of {', '.join(FORMS)}, or pass a module."
    )

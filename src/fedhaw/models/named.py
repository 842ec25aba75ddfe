"""Models by name, fitted to a data set's samples and classes."""

from collections.abc import Callable
from inspect import signature

from torch import nn

from fedhaw.listing import Listing
from fedhaw.models.layout import UnsupportedModule
from fedhaw.names import is_reference, make, no_such

MODELS: Listing[Callable[..., nn.Module]] = Listing("models")
"""What makes each model: a function (a sample's shape, classes, widths if it has any)."""


def build(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model by its name, with PyTorch's default initial values.

    Args:
        name: one of `MODELS`, with widths after it where it has any, such as ``"mlp-200-100"`` for
            hidden layers other than the letter's 128-128; or where a user's own module, its class,
            or a function that makes it stands, such as `my_model.py:Net`. A class or function is
            given those of the next two that are among its parameters.
        input_shape: of one sample: (F,), (H, W) or (C, H, W).
        classes: how many logits come out.

    Raises:
        UnsupportedModule: there is no such model, or not for samples of this shape.
    """
    if is_reference(name):
        return make(name, nn.Module, input_shape=input_shape, classes=classes)
    kind, *rest = name.split("-")
    # Eighteen digits fit 64 bits; longer widths are no model's.
    if kind not in MODELS or not all(w.isdecimal() and len(w) < 19 and int(w) > 0 for w in rest):
        raise _unknown(name)
    model, widths = MODELS[kind], [int(width) for width in rest]
    try:
        signature(model).bind(input_shape, classes, *widths)
    except TypeError as error:  # more widths than it has
        raise _unknown(name) from error
    try:
        return model(input_shape, classes, *widths)
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        raise UnsupportedModule(
            f"{name} does not fit this machine's memory; choose a smaller width."
        ) from error


def _unknown(name: str) -> UnsupportedModule:
    return UnsupportedModule(no_such("model named", name, tuple(MODELS)))

"""From stored pixels to a network's input.

Two scales, with u a pixel in 0..255:

    matched   (u/255 - 0.5) / 0.5 for training and test images alike
    authors   what the letter's authors fed their networks, whose two parts do not match:
              grey images    (u/255 - 0.5) / 0.5 in training,   u/255 - 0.5           in the test
              colour images   u/255              in training,  (u/255 - 0.5) / 0.5    in the test

Floats are taken to be scaled already and pass unchanged, under either name.
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.dataset import Dataset, Inputs
from fedhaw.data.errors import DataError
from fedhaw.errors import shown

InputScale: TypeAlias = Literal["matched", "authors"]
INPUT_SCALES: tuple[InputScale, ...] = get_args(InputScale)
Part: TypeAlias = Literal["train", "test"]


class ScaledInputs(NamedTuple):
    """A network's inputs.

    Attributes:
        x_train: (N, C, H, W) or (N, F) float32.
        x_test: (M, C, H, W) or (M, F) float32.
    """

    x_train: NDArray[np.float32]
    x_test: NDArray[np.float32]


def scaled(dataset: Dataset, input_scale: InputScale = "matched") -> ScaledInputs:
    """Both parts of a data set as float32, images channels-first."""
    return ScaledInputs(
        scaled_part(dataset, "train", input_scale), scaled_part(dataset, "test", input_scale)
    )


def scaled_part(
    dataset: Dataset, part: Part, input_scale: InputScale = "matched"
) -> NDArray[np.float32]:
    """One part of a data set as float32, images channels-first.

    Evaluating on a second input scale needs the test part only, hence one part at a time.

    Raises:
        DataError: no such input scale.
    """
    if input_scale not in INPUT_SCALES:
        raise DataError(
            f"There is no input scale {shown(input_scale)}; choose from {', '.join(INPUT_SCALES)}."
        )
    inputs = _channels_first(dataset.x_train if part == "train" else dataset.x_test)
    floats = np.ascontiguousarray(inputs, dtype=np.float32)
    if inputs.dtype != np.uint8:
        return floats
    # In place, because this is the largest array of a simulation; in float32 throughout, because
    # the authors' arithmetic is.
    floats /= 255
    kind = "matched" if input_scale == "matched" else "grey" if _is_grey(inputs) else "colour"
    if (kind, part) != ("colour", "train"):
        floats -= 0.5
        if (kind, part) != ("grey", "test"):
            floats /= 0.5
    return floats


def _is_grey(inputs: Inputs) -> bool:
    """Whether channels-first images have one channel; flattened images count as grey."""
    return inputs.ndim < 4 or inputs.shape[1] == 1


def _channels_first(inputs: Inputs) -> Inputs:
    if inputs.ndim == 3:
        return inputs[:, np.newaxis]
    if inputs.ndim == 4:
        return np.moveaxis(inputs, -1, 1)
    return inputs

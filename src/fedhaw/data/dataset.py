"""A data set in memory, and how a user's arrays become one.

Images stay uint8 and channels-last, as they are stored everywhere, until `fedhaw.data.scaled` turns
them into a network's input. Feature vectors are float32 and are used as they are.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.data.errors import DataError
from fedhaw.errors import shown

Inputs: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""Images (N, H, W[, C]) or feature vectors (N, F)."""

Labels: TypeAlias = NDArray[np.int64]

CHANNELS = (1, 3, 4)
"""How many channels an image may have: grey, colour, colour with transparency."""

MOST_CLASSES_UNASKED = 1_000
"""More classes than this, and than samples, are taken for a mistake unless `classes` says so."""


MOST_CLASSES = 1_000_000
"""No data set has more; a file that says so was made by mistake, or to fill the memory."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with their labels.

    Attributes:
        name: how reports call it.
        x_train: (N, H, W) or (N, H, W, C) uint8 images, or (N, F) float32 features.
        y_train: (N,) int64 labels in 0..classes-1.
        x_test: (M, ...) as x_train.
        y_test: (M,) as y_train.
        classes: how many classes there are; some may have no sample here.
        holders: (N,) who held each training sample where the data was collected, if that is known;
            `fedhaw.data.by_holder` makes a client of each.
        whole_labels: labels of the whole training set when x_train is only its beginning, so that
            a split made over all of it can still be reproduced.
    """

    name: str
    x_train: Inputs
    y_train: Labels
    x_test: Inputs
    y_test: Labels
    classes: int
    holders: NDArray[np.int64] | None = None
    whole_labels: Labels | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample as a network sees it: (C, H, W) for an image, (F,) for features."""
        match self.x_train.shape[1:]:
            case (height, width):
                return (1, height, width)
            case (height, width, channels):
                return (channels, height, width)
            case shape:
                return shape

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {len(self.y_train)} training and {len(self.y_test)} test "
            f"samples of shape {self.x_train.shape[1:]}, {self.classes} classes)"
        )


def from_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    name: str = "arrays",
    *,
    classes: int | None = None,
    holders: ArrayLike | None = None,
    whole_labels: ArrayLike | None = None,
) -> Dataset:
    """A data set of a user's arrays, which are checked.

    Samples may be
    - images, (N, H, W), (N, H, W, C) or (N, C, H, W): whole numbers in 0..255, which `scaled` maps
      to a network's range, or floats, taken to be scaled already;
    - vectors, (N, F): floats or whole numbers used as they are, except uint8, which are the
      pixels of flattened images and are scaled like images.

    Args:
        x_train: (N, ...) training samples.
        y_train: (N,) or (N, 1) whole numbers from 0.
        x_test: (M, ...) test samples of the same shape.
        y_test: (M,) or (M, 1).
        name: how reports and error messages call the data.
        classes: how many classes there are, default one more than the largest label.
        holders: (N,) optional, see `Dataset.holders`.
        whole_labels: optional, see `Dataset.whole_labels`.

    Raises:
        DataError: anything that does not fit, named.
    """
    train, test = _samples(x_train, name, "x_train"), _samples(x_test, name, "x_test")
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"Training and test samples of {name} differ: x_train holds {train.dtype} of shape "
            f"{train.shape[1:]} and x_test {test.dtype} of shape {test.shape[1:]}; "
            "prepare both in the same way."
        )
    train_labels = _whole_numbers(y_train, name, "y_train", len(train))
    test_labels = _whole_numbers(y_test, name, "y_test", len(test))
    everything = [train_labels, test_labels]
    if whole_labels is not None:
        whole = _whole_numbers(whole_labels, name, "whole_labels", None)
        if not np.array_equal(whole[: len(train)], train_labels):
            raise DataError(
                f"The labels of the whole training set of {name} do not begin with y_train; "
                "give them in the same order."
            )
        everything.append(whole)
    return Dataset(
        name=name,
        x_train=train,
        y_train=train_labels,
        x_test=test,
        y_test=test_labels,
        classes=_count_classes(everything, classes, name),
        holders=None if holders is None else _whole_numbers(holders, name, "holders", len(train)),
        whole_labels=None if whole_labels is None else everything[-1],
    )


def from_table(
    x: ArrayLike,
    y: ArrayLike,
    name: str = "table",
    *,
    classes: int | None = None,
    holders: ArrayLike | None = None,
    test_share: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set of samples that nobody has divided into training and test yet.

    Args:
        x: (N, ...) samples, as in `from_arrays`.
        y: (N,) labels.
        name: how reports and error messages call the data.
        classes: how many classes there are, default one more than the largest label.
        holders: (N,) who held each sample; the training samples keep theirs.
        test_share: see `stratified_split`.
        seed: see `stratified_split`.

    Raises:
        DataError: anything that does not fit, named.
    """
    samples = _samples(x, name, "x")
    labels = _whole_numbers(y, name, "y", len(samples))
    owners = None if holders is None else _whole_numbers(holders, name, "holders", len(samples))
    train, test = stratified_split(labels, test_share, seed)
    return from_arrays(
        samples[train],
        labels[train],
        samples[test],
        labels[test],
        name,
        classes=_count_classes([labels], classes, name),
        holders=None if owners is None else owners[train],
    )


def stratified_split(
    labels: ArrayLike, test_share: float = 0.2, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A split that sets aside the same share of every class for testing.

    A class of n samples gives round(n * test_share) of them, so a class of one or two goes to
    training whole. Both parts come shuffled: a batch of neighbours then holds many classes, which
    evaluation by batch statistics relies on. NumPy's legacy generator is used throughout this
    package's splits because its stream never changes between NumPy releases.

    Args:
        labels: (N,) labels.
        test_share: share set aside, between 0 and 1.
        seed: two calls with the same seed agree.

    Returns:
        Training and test indices, disjoint, together all of 0..N-1.
    """
    if not 0 < test_share < 1:
        raise DataError(f"test_share is {test_share}; give a number between 0 and 1.")
    known = np.asarray(labels)
    random = np.random.RandomState(seed)
    for_testing = np.zeros(len(known), dtype=bool)
    for label in np.unique(known):
        members = random.permutation(np.flatnonzero(known == label))
        for_testing[members[: int(len(members) * test_share + 0.5)]] = True
    order = random.permutation(len(known)).astype(np.int64)
    return order[~for_testing[order]], order[for_testing[order]]


def _samples(values: ArrayLike, name: str, part: str) -> Inputs:
    array: NDArray[np.generic] = _as_array(values, name, part)
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise DataError(
            f"{part} of {name} has shape {array.shape}; give images (N, H, W) or (N, H, W, C), or "
            "feature vectors (N, F), with at least one sample."
        )
    if array.ndim == 4 and array.shape[-1] not in CHANNELS:
        if array.shape[1] not in CHANNELS:
            raise DataError(
                f"{part} of {name} has shape {array.shape}, in which no axis is one of 1, 3 or 4 "
                "channels; give colour images as (N, H, W, C)."
            )
        array = np.moveaxis(array, 1, -1)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind in "iu" and array.ndim > 2:
        if array.min() < 0 or array.max() > 255:
            raise DataError(
                f"The pixels of {part} of {name} run from {array.min()} to {array.max()}; give "
                "whole numbers in 0..255, or floats that are scaled already."
            )
        return np.ascontiguousarray(array, dtype=np.uint8)
    with np.errstate(over="ignore"):  # becomes infinite, and is refused as such below
        floats = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(floats).reshape(len(floats), -1).all(axis=1)
    if not finite.all():
        raise DataError(
            f"{part} of {name} holds values that are not finite float32 numbers, first in sample "
            f"{int(np.argmin(finite))}; repair or drop {int((~finite).sum())} samples."
        )
    return floats


def _whole_numbers(values: ArrayLike, name: str, part: str, length: int | None) -> Labels:
    array: NDArray[np.generic] = _as_array(values, name, part)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"{part} of {name} has shape {array.shape}; give one whole number a sample, (N,), "
            "not one-hot rows."
        )
    if length is not None and len(array) != length:
        raise DataError(
            f"{part} of {name} has {len(array)} entries for {length} samples; give one each."
        )
    whole = array.dtype.kind in "iu" or bool(np.all(array == np.rint(array)))
    # Past 2**53 a float no longer tells neighbours apart, and int64 would wrap soon after.
    if not whole or (len(array) and (array.min() < 0 or array.max() >= 2**53)):
        raise DataError(f"{part} of {name} must hold whole numbers from 0; renumber them.")
    return array.astype(np.int64)


def _count_classes(labels: list[Labels], classes: int | None, name: str) -> int:
    largest = max(int(part.max()) for part in labels if len(part))
    if classes is not None:
        whole = isinstance(classes, Integral) and not isinstance(classes, bool)
        if not whole or not 1 <= classes <= MOST_CLASSES:
            raise DataError(
                f"classes of {name} is {shown(classes)}; give a whole number, 1 to "
                f"{MOST_CLASSES:,}."
            )
        if largest >= classes:
            raise DataError(
                f"A label of {name} is {largest}, beyond the last of its {classes} classes, "
                f"{classes - 1}; correct the labels or the number of classes."
            )
        return int(classes)
    if largest >= max(MOST_CLASSES_UNASKED, sum(map(len, labels))):
        raise DataError(
            f"A label of {name} is {largest}, more than there are samples; number the classes "
            "from 0, or say how many there are with classes=."
        )
    return largest + 1


def _as_array(values: ArrayLike, name: str, part: str) -> NDArray[np.generic]:
    try:
        # A torch tensor that requires a gradient gives its numbers only when detached.
        detach = getattr(values, "detach", None)
        array = np.asarray(detach() if callable(detach) else values)
    except (ValueError, TypeError, RuntimeError):  # a ragged list, or a tensor on another device
        array = np.empty((), dtype=object)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{part} of {name} is not an array of numbers (its type is {array.dtype}); "
            "give whole numbers or floats, all samples of one shape."
        )
    return array.astype(np.uint8) if array.dtype.kind == "b" else array

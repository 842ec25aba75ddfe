import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhaw.data import DataError, Dataset, from_arrays, from_table, scaled, scaled_part, split
from fedhaw.data.dataset import stratified_split

GREY = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
COLOUR = np.arange(6 * 5 * 4 * 3, dtype=np.int64).reshape(6, 5, 4, 3) % 256
FEATURES = np.linspace(-3, 3, 6 * 7).reshape(6, 7)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def simple(x: Any, y: Any = LABELS, **more: Any) -> Dataset:
    return from_arrays(x, y, x, y, **more)


def test_images_stay_bytes_and_features_become_float32() -> None:
    grey, colour, features = simple(GREY), simple(COLOUR), simple(FEATURES)
    kinds = [data.x_train.dtype.name for data in (grey, colour, features)]
    assert kinds == ["uint8", "uint8", "float32"]
    shapes = [data.input_shape for data in (grey, colour, features)]
    assert shapes == [(1, 5, 4), (3, 5, 4), (7,)]
    assert grey.y_train.dtype == np.int64
    assert grey.classes == 3
    assert "6 training and 6 test samples" in repr(grey)


def test_channels_first_images_are_turned_round() -> None:
    images = COLOUR.reshape(6, 2, 10, 3)
    turned = simple(np.moveaxis(images, -1, 1))
    np.testing.assert_array_equal(turned.x_train, images)


def test_labels_may_be_a_column_or_whole_floats() -> None:
    for labels in (LABELS[:, None], LABELS.astype(float), LABELS.astype(np.uint8), LABELS.tolist()):
        np.testing.assert_array_equal(simple(GREY, labels).y_train, LABELS)


def test_classes_without_samples_may_be_announced() -> None:
    assert simple(GREY, classes=120).classes == 120


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": GREY[0, 0]}, "x_train of arrays has shape (4,)"),
        ({"x_train": GREY[:0]}, "at least one sample"),
        ({"x_train": np.zeros((6, 5, 5, 5))}, "no axis is one of 1, 3 or 4 channels"),
        ({"x_train": np.zeros((6, 1, 1, 1, 1))}, "(6, 1, 1, 1, 1)"),
        ({"x_test": GREY[:, :4]}, "differ"),
        ({"x_test": GREY / 255}, "differ"),
        ({"x_train": GREY.astype(int) * 3}, "run from 0 to 357"),
        ({"x_train": GREY.astype(int) - 1}, "run from -1"),
        ({"x_train": np.where(FEATURES > 2.9, np.nan, FEATURES)}, "first in sample 5"),
        ({"x_train": FEATURES * 1e300}, "not finite float32"),
        ({"x_train": GREY.astype(str)}, "not an array of numbers"),
        ({"x_train": GREY.astype(object)}, "its type is object"),
        ({"x_train": [[1, 2], [3]]}, "not an array of numbers"),
        ({"x_train": FEATURES + 1j}, "complex128"),
        ({"y_train": LABELS[:5]}, "5 entries for 6 samples"),
        ({"y_test": np.eye(6)}, "not one-hot"),
        ({"y_train": LABELS - 1}, "whole numbers from 0"),
        ({"y_train": LABELS + 0.5}, "whole numbers from 0"),
        ({"y_train": np.full(6, np.nan)}, "whole numbers from 0"),
        ({"y_train": np.full(6, np.inf)}, "whole numbers from 0"),
        ({"y_train": np.full(6, 2**63, dtype=np.uint64)}, "whole numbers from 0"),
        ({"y_train": LABELS + 10**6}, "more than there are samples"),
        ({"classes": 2}, "beyond the last of its 2 classes"),
        ({"holders": [1, 2]}, "holders of arrays has 2 entries"),
        ({"whole_labels": [2, 1, 0, 0, 1, 2, 2]}, "do not begin with y_train"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays: dict[str, Any], says: str) -> None:
    fine = {"x_train": GREY, "y_train": LABELS, "x_test": GREY, "y_test": LABELS}
    with pytest.raises(DataError, match=re.escape(says)):
        from_arrays(**{**fine, **arrays})


@given(
    labels=st.lists(st.integers(0, 5), min_size=5, max_size=200).map(np.array),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_every_class_gives_the_same_share(labels: np.ndarray, share: float, seed: int) -> None:
    train, test = stratified_split(labels, share, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    for label in np.unique(labels):
        given_up = int((labels[test] == label).sum())
        assert abs(given_up - share * (labels == label).sum()) <= 0.5 + 1e-9


def test_a_divided_table_comes_shuffled_and_keeps_holders() -> None:
    labels = np.repeat(np.arange(10), 50)
    x = np.arange(500, dtype=np.float32)[:, None]
    data = from_table(x, labels, holders=np.arange(500) // 100)
    assert (len(data.y_train), len(data.y_test)) == (400, 100)
    assert len(np.unique(data.y_test[:20])) > 4  # sorted by class, it would be two
    assert data.holders is not None
    np.testing.assert_array_equal(data.holders, data.x_train[:, 0] // 100)
    np.testing.assert_array_equal(data.y_train, data.x_train[:, 0] // 50)
    assert len(split(data, "holders", 5)) == 5


@pytest.mark.parametrize("share", [0, 1, -0.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        stratified_split(LABELS, share)


def as_the_authors(images: np.ndarray, *, centre: bool, stretch: bool) -> np.ndarray:
    """Their arithmetic: torchvision's ToTensor, then Normalize, in float32 torch."""
    tensor = torch.from_numpy(images.astype(np.uint8)).float().div(255)
    if centre:
        tensor = tensor.sub(0.5).div(0.5 if stretch else 1.0)
    return tensor.numpy()


@pytest.mark.parametrize("colour", [False, True])
def test_scales_are_bitwise_the_documented_ones(colour: bool) -> None:
    every_pixel = np.arange(256 * 3, dtype=np.int64).reshape(4, 8, 8, 3) % 256
    images = every_pixel if colour else every_pixel[..., 0]
    data = from_arrays(images, [0, 1, 2, 3], images, [0, 1, 2, 3])
    planes = np.moveaxis(images, -1, 1) if colour else images[:, None]
    signed = as_the_authors(planes, centre=True, stretch=True)

    matched = scaled(data)
    np.testing.assert_array_equal(matched.x_train, signed)
    np.testing.assert_array_equal(matched.x_test, signed)

    authors = scaled(data, "authors")
    plain = as_the_authors(planes, centre=False, stretch=False)
    centred = as_the_authors(planes, centre=True, stretch=False)
    np.testing.assert_array_equal(authors.x_train, plain if colour else signed)
    np.testing.assert_array_equal(authors.x_test, signed if colour else centred)
    for array in (*matched, *authors):
        assert array.dtype == np.float32
        assert array.flags.c_contiguous


def test_scaling_leaves_the_data_set_alone() -> None:
    data = simple(GREY)
    scaled(data)
    np.testing.assert_array_equal(data.x_train, GREY)


@pytest.mark.parametrize("scale", ["matched", "authors"])
def test_floats_pass_unchanged(scale: Any) -> None:
    features = simple(FEATURES)
    np.testing.assert_array_equal(scaled(features, scale).x_train, features.x_train)
    images = simple(COLOUR / 51.0)
    inputs = scaled_part(images, "test", scale)
    np.testing.assert_array_equal(inputs, np.moveaxis(images.x_test, -1, 1))


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(DataError, match="choose from matched, authors"):
        scaled(simple(GREY), "unit")  # type: ignore[arg-type]


@pytest.mark.parametrize("classes", ["3", 3.5, True, 0, 10**7])
def test_a_number_of_classes_that_is_none_is_refused(classes: Any) -> None:
    x, y = np.zeros((4, 3), np.float32), np.zeros(4, np.int64)
    with pytest.raises(DataError, match="classes of arrays is"):
        from_arrays(x, y, x, y, classes=classes)


def test_a_tensor_that_requires_a_gradient_gives_its_numbers() -> None:
    x = torch.ones(4, 3, requires_grad=True)
    dataset = from_arrays(x, [0, 1, 0, 1], x.detach(), [0, 1, 0, 1], classes=np.int64(3))  # type: ignore[arg-type]
    np.testing.assert_array_equal(dataset.x_train, np.ones((4, 3)))
    assert dataset.classes == 3

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stand_ins import GOLDEN

from fedhaw.data import DataError, proxy_split, read_proxy_split


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_gives_the_letters_lists_in_order(data_sets: Path, name: str) -> None:
    proxy, evaluation = proxy_split(10_000, classes=10)
    both = np.concatenate([proxy, evaluation]).astype("<i4")
    assert sha256(both.tobytes()).hexdigest() == GOLDEN[f"{name}_proxy_sha256"]
    stored = read_proxy_split(data_sets / f"{name}_partitions.npz", samples=10_000)
    np.testing.assert_array_equal(proxy, stored[0])
    np.testing.assert_array_equal(evaluation, stored[1])


@given(samples=st.integers(1, 3000), classes=st.integers(1, 150), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_parts_never_overlap_and_cover_the_test_set(samples: int, classes: int, seed: int) -> None:
    proxy, evaluation = proxy_split(samples, classes, seed)
    assert len(proxy) == min(10 * classes, samples // 5)
    both = np.concatenate([proxy, evaluation])
    np.testing.assert_array_equal(np.sort(both), np.arange(samples))


@given(samples=st.integers(2, 500), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_draws_what_torch_draws(samples: int, seed: int) -> None:
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed)).numpy()
    proxy, evaluation = proxy_split(samples, 10, seed, size=1)
    np.testing.assert_array_equal(np.concatenate([proxy, evaluation]), order)


def test_takes_labels_in_place_of_their_number() -> None:
    for number, labels in zip(proxy_split(500, 3), proxy_split(np.zeros(500), 3), strict=True):
        np.testing.assert_array_equal(number, labels)


@pytest.mark.parametrize("size", [0, 500, 501])
def test_a_size_that_empties_a_part_is_refused(size: int) -> None:
    with pytest.raises(DataError, match="1 to 499"):
        proxy_split(500, 10, size=size)


def test_no_test_samples_at_all_are_refused() -> None:
    with pytest.raises(DataError, match="0 test samples"):
        proxy_split(0, 10)


def test_overlapping_lists_in_a_file_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", proxy_test_indices=[0, 1], eval_test_indices=[1, 2])
    with pytest.raises(DataError, match="twice"):
        read_proxy_split(tmp_path / "p.npz")
    np.savez(tmp_path / "q.npz", proxy_test_indices=[0, 1])
    with pytest.raises(DataError, match="lacks eval_test_indices"):
        read_proxy_split(tmp_path / "q.npz")

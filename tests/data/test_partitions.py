from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.stand_ins import GOLDEN, LETTER

from fedhaw.data import (
    DataError,
    by_holder,
    dirichlet,
    from_arrays,
    iid,
    label_counts,
    letter_dirichlet,
    load,
    read_partition,
    restrict,
    shards,
    split,
    write_partition,
)
from fedhaw.data import partitions as partitions_module


def is_partition(parts: list[np.ndarray], samples: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


@pytest.mark.parametrize("key", LETTER)
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_letter_split_gives_the_published_lists_in_order(name: str, key: str) -> None:
    parts = letter_dirichlet(GOLDEN[f"{name}_labels"], clients=10, alpha=LETTER[key])
    offsets = np.cumsum([0, *map(len, parts)])
    np.testing.assert_array_equal(offsets, GOLDEN[f"{name}_{key}_offsets"])
    lists = np.concatenate(parts).astype("<i4").tobytes()
    assert sha256(lists).hexdigest() == GOLDEN[f"{name}_{key}_sha256"]


@pytest.mark.parametrize("key", LETTER)
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_published_lists_can_be_read_from_their_file(data_sets: Path, name: str, key: str) -> None:
    labels = GOLDEN[f"{name}_labels"]
    read = read_partition(data_sets / f"{name}_partitions.npz", key, samples=len(labels))
    made = letter_dirichlet(labels, 10, LETTER[key])
    assert all(map(np.array_equal, read, made))


def test_first_images_of_cifar10_keep_the_letters_clients(data_sets: Path) -> None:
    dataset = load("cifar10", data_sets, download=False)
    parts = split(dataset, "letter", 10, alpha=0.1)
    assert is_partition(parts, len(dataset.y_train))
    lists = data_sets / "cifar10_partitions.npz"
    for here, published in zip(parts, read_partition(lists, "alpha01", 50_000), strict=True):
        np.testing.assert_array_equal(here, published[published < 10_000])
    assert all(map(np.array_equal, parts, split(dataset, f"{lists}:alpha01", 10)))


labels_strategy = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array)


@given(
    labels=labels_strategy,
    clients=st.integers(1, 12),
    alpha=st.floats(1e-6, 1e3),
    seed=st.integers(0, 2**32 - 1),
    min_size=st.integers(1, 12),
)
@settings(max_examples=150, deadline=None)
def test_plain_dirichlet_covers_everything_and_keeps_the_minimum(
    labels: np.ndarray, clients: int, alpha: float, seed: int, min_size: int
) -> None:
    if clients * min_size > len(labels):
        with pytest.raises(DataError, match=rf"{clients} clients"):
            dirichlet(labels, clients, alpha, seed, min_size)
        return
    parts = dirichlet(labels, clients, alpha, seed, min_size)
    assert len(parts) == clients
    assert is_partition(parts, len(labels))
    assert min(map(len, parts)) >= min_size
    again = dirichlet(labels, clients, alpha, seed, min_size)
    assert all(map(np.array_equal, parts, again))


def test_plain_dirichlet_mends_a_draw_that_will_never_do() -> None:
    # One class and a tiny alpha: every draw gives all of it to one client.
    parts = dirichlet(np.zeros(100, dtype=int), clients=10, alpha=1e-6, min_size=10)
    assert [len(part) for part in parts] == [10] * 10


def test_plain_dirichlet_stops_drawing_after_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws = 0
    draw = partitions_module._draw_shares

    def counting(*args: object, **kwargs: object) -> np.ndarray:
        nonlocal draws
        draws += 1
        return draw(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(partitions_module, "_draw_shares", counting)
    dirichlet(np.zeros(100, dtype=int), clients=10, alpha=1e-6, min_size=10)
    assert draws == partitions_module.REDRAWS


def test_plain_dirichlet_does_not_redraw_a_good_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.repeat(np.arange(10), 100)
    expected = dirichlet(labels, 5, alpha=10.0, min_size=1)
    monkeypatch.setattr(partitions_module, "REDRAWS", 1)
    assert all(map(np.array_equal, expected, dirichlet(labels, 5, alpha=10.0, min_size=1)))


def test_a_smaller_alpha_is_more_skewed() -> None:
    labels = np.repeat(np.arange(10), 200)

    def largest_share(alpha: float) -> float:
        counts = label_counts(labels, dirichlet(labels, 10, alpha, seed=3), 10)
        return float((counts.max(axis=0) / counts.sum(axis=0)).mean())

    assert largest_share(0.05) > 0.6 > 0.3 > largest_share(100.0)


@given(
    labels=labels_strategy,
    clients=st.integers(1, 12),
    alpha=st.floats(1e-6, 1e3),
    seed=st.integers(0, 2**32 - 1),
)
@example(labels=np.array([0, 1, 2, 2, 3, 4, 5]), clients=7, alpha=1e-05, seed=655360)
@settings(max_examples=100, deadline=None)
def test_letter_split_is_a_partition_or_says_who_is_empty(
    labels: np.ndarray, clients: int, alpha: float, seed: int
) -> None:
    try:
        parts = letter_dirichlet(labels, clients, alpha, seed)
    except DataError as error:
        refusal = str(error)
    else:
        assert is_partition(parts, len(labels))
        assert min(map(len, parts)) > 0
        return
    assert "client" in refusal


@pytest.mark.parametrize("seed", range(8))
def test_letter_split_closes_a_client_at_exactly_its_share(seed: int) -> None:
    # So small an alpha gives a class to one client; holding N/K, it must not get the second too.
    parts = letter_dirichlet(np.repeat([0, 1], 50), clients=2, alpha=1e-6, seed=seed)
    assert sorted(part.min() for part in parts) == [0, 50]
    assert [len(part) for part in parts] == [50, 50]


@given(labels=labels_strategy, clients=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_iid_deals_equally(labels: np.ndarray, clients: int, seed: int) -> None:
    if clients > len(labels):
        with pytest.raises(DataError, match="clients"):
            iid(labels, clients, seed)
        return
    parts = iid(labels, clients, seed)
    assert is_partition(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(seed=st.integers(0, 2**32 - 1), per_client=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_shards_hold_few_classes(seed: int, per_client: int) -> None:
    labels = np.random.RandomState(0).permutation(np.repeat(np.arange(6), 30))
    parts = shards(labels, clients=6, shards_per_client=per_client, seed=seed)
    assert is_partition(parts, len(labels))
    # Each shard is an exact fraction of a class here, so it touches one class only.
    assert all(len(np.unique(labels[part])) <= per_client for part in parts)


def test_splits_depend_on_the_seed() -> None:
    labels = np.repeat(np.arange(10), 50)
    for make in (iid, shards):
        assert not np.array_equal(make(labels, 5, seed=0)[0], make(labels, 5, seed=1)[0])
    assert not np.array_equal(
        dirichlet(labels, 5, 1.0, seed=0)[0], dirichlet(labels, 5, 1.0, seed=1)[0]
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"clients": 0}, "0 clients"),
        ({"clients": 101}, "101 clients"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"min_size": 0}, "at least 0"),
        ({"min_size": 26}, "min_size of at most 25"),
    ],
)
def test_impossible_splits_are_refused(arguments: dict[str, float], says: str) -> None:
    with pytest.raises(DataError, match=says):
        dirichlet(np.zeros(100, dtype=int), **{"clients": 4, "alpha": 1.0, **arguments})  # type: ignore[arg-type]


def test_too_many_shards_are_refused() -> None:
    with pytest.raises(DataError, match="1 to 5"):
        shards(np.zeros(10), clients=2, shards_per_client=6)


def test_split_by_name_reaches_every_procedure() -> None:
    labels = np.repeat(np.arange(4), 25)
    x = np.zeros((100, 2), dtype=np.float32)
    dataset = from_arrays(x, labels, x, labels, holders=np.arange(100) % 3 + 5)
    assert all(map(np.array_equal, split(dataset, "iid", 4), iid(labels, 4)))
    assert all(
        map(np.array_equal, split(dataset, "letter", 4, alpha=1), letter_dirichlet(labels, 4, 1))
    )
    assert all(
        map(np.array_equal, split(dataset, "dirichlet", 4, seed=7), dirichlet(labels, 4, 1.0, 7))
    )
    assert all(map(np.array_equal, split(dataset, "shards", 4), shards(labels, 4)))
    held = split(dataset, "holders", 3)
    assert all(map(np.array_equal, held, by_holder(dataset.holders)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(held[0], np.arange(0, 100, 3))
    with pytest.raises(DataError, match="3 clients"):
        split(dataset, "holders", 4)
    with pytest.raises(DataError, match="no split 'lettre'"):
        split(dataset, "lettre", 4)
    with pytest.raises(DataError, match="does not say who"):
        split(from_arrays(x, labels, x, labels), "holders", 3)


def test_restricting_names_the_client_left_with_nothing() -> None:
    parts = [np.array([0, 5]), np.array([6, 7])]
    assert [part.tolist() for part in restrict(parts, 7)] == [[0, 5], [6]]
    with pytest.raises(DataError, match="Client 1"):
        restrict(parts, 6)


def test_a_stored_split_comes_back(tmp_path: Path) -> None:
    parts = dirichlet(np.repeat(np.arange(5), 40), clients=6, alpha=0.5)
    write_partition(tmp_path / "clients.npz", parts)
    read = read_partition(tmp_path / "clients.npz", samples=200)
    assert all(map(np.array_equal, parts, read))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"indices": [0, 1, 1], "offsets": [0, 2, 3]}, "twice"),
        ({"indices": [0, 1, 9], "offsets": [0, 2, 3]}, "another data set"),
        ({"indices": [0, 1, -1], "offsets": [0, 2, 3]}, "another data set"),
        ({"indices": [0, 1, 2], "offsets": [0, 2, 2, 3]}, "offsets"),
        ({"indices": [0, 1, 2], "offsets": [0, 5]}, "offsets"),
        ({"indices": [0.0, 1.0], "offsets": [0, 2]}, "float64"),
        ({"indices": [0, 1]}, "no arrays"),
        ({"a_indices": [0, 1], "a_offsets": [0, 2]}, "splits in it are: a"),
    ],
)
def test_a_file_that_is_no_split_is_refused(
    tmp_path: Path, arrays: dict[str, list[float]], says: str
) -> None:
    savez: Any = np.savez  # its annotation does not allow for arrays given by **
    savez(tmp_path / "bad.npz", **{key: np.array(value) for key, value in arrays.items()})
    with pytest.raises(DataError, match=says) as caught:
        read_partition(tmp_path / "bad.npz", samples=5)
    assert "bad.npz" in str(caught.value)

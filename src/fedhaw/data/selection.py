"""Less of a data set than there is, and labels worse than they are."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhaw.data.dataset import Dataset
from fedhaw.data.errors import DataError
from fedhaw.data.partitions import Indices


def beginning(dataset: Dataset, samples: int) -> Dataset:
    """The data set with its first training samples only; it remembers the labels of all.

    Raises:
        DataError: there are not so many.
    """
    available = len(dataset.y_train)
    if samples > available:
        raise DataError(
            f"train_samples is {samples}, but {dataset.name} has only {available} here; ask for "
            "fewer, or put the whole data set into the data folder."
        )
    return replace(
        dataset,
        x_train=dataset.x_train[:samples],
        y_train=dataset.y_train[:samples],
        holders=None if dataset.holders is None else dataset.holders[:samples],
        whole_labels=dataset.y_train if dataset.whole_labels is None else dataset.whole_labels,
    )


def with_noisy_clients(
    dataset: Dataset, parts: Sequence[Indices], count: int, seed: int | None
) -> Dataset:
    """The data set with random labels on everything that some of the clients hold.

    Args:
        dataset: whose training labels.
        parts: for each client, the indices of its samples.
        count: how many clients, drawn at random.
        seed: of the split; like the split, the noise belongs to the data and not to the run.
    """
    if not count:
        return dataset
    random = np.random.default_rng([count, seed or 0])
    y_train = dataset.y_train.copy()
    for client in random.choice(len(parts), count, replace=False):
        y_train[parts[client]] = random.integers(dataset.classes, size=len(parts[client]))
    return replace(dataset, y_train=y_train)

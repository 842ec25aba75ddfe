"""Stand-ins for the letter's data sets, for a checkout that has none beside it.

Each file has the name, the layout, the shapes and the training labels of the one it stands for, so
that its splits are the letter's, sample by sample. The samples are others: MNIST's are mnist-5k's
digits over and over, CIFAR-10's a colour for each class, and the features of Stanford Dogs a cloud
for each breed behind a layer norm.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedhaw.data import letter_dirichlet, load
from fedhaw.data.checksums import md5_of
from fedhaw.data.cifar import CIFAR10
from fedhaw.data.idx import idx_pieces
from fedhaw.data.mnist import MNIST
from fedhaw.data.source import Source

LETTER = {"alpha01": 0.1, "alpha1": 1.0}
"""The letter's splits as their files name them, and the concentration of each."""

with np.load(Path(__file__).parent / "golden" / "letter_splits.npz", allow_pickle=False) as stored:
    GOLDEN = dict(stored)


def write_stand_ins(folder: Path) -> dict[str, Source]:
    """The files, and the data sets whose checksums are those of these files."""
    random = np.random.RandomState(0)
    for name in ("mnist", "cifar10"):
        _write_splits(folder / f"{name}_partitions.npz", GOLDEN[f"{name}_labels"])
    _write_dogs(folder / "dogs_vit_features.npz", random)
    return {
        "mnist": _write_mnist(folder / "mnist.npz", random),
        "cifar10": _write_cifar10(folder / "cifar10_12k.npz", random),
    }


def _write_splits(path: Path, labels: np.ndarray) -> None:
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(42)).numpy()
    arrays = {"proxy_test_indices": order[:100], "eval_test_indices": order[100:]}
    for key, alpha in LETTER.items():
        parts = letter_dirichlet(labels, clients=10, alpha=alpha)
        arrays[f"{key}_indices"] = np.concatenate(parts)
        arrays[f"{key}_offsets"] = np.cumsum([0, *map(len, parts)])
    _save(path, {key: array.astype(np.int32) for key, array in arrays.items()})


def _write_mnist(path: Path, random: np.random.RandomState) -> Source:
    digits = load("mnist-5k")
    of_class = [digits.x_train[digits.y_train == label] for label in range(10)]
    arrays: dict[str, np.ndarray] = {}
    parts = {"train": GOLDEN["mnist_labels"], "test": random.randint(0, 10, 10_000, np.uint8)}
    for part, labels in parts.items():
        images = np.empty((len(labels), 28, 28), np.uint8)
        for label, samples in enumerate(of_class):
            here = np.flatnonzero(labels == label)
            images[here] = samples[random.randint(len(samples), size=len(here))]
        arrays |= {f"x_{part}": images, f"y_{part}": labels}
    _save(path, arrays)
    files = (
        replace(file, md5=md5_of(idx_pieces(array)))
        for file, array in zip(MNIST.files, arrays.values(), strict=True)
    )
    return replace(MNIST, files=tuple(files))


def _write_cifar10(path: Path, random: np.random.RandomState) -> Source:
    whole = GOLDEN["cifar10_labels"]
    arrays = {"y_train": whole[:10_000], "y_test": random.randint(0, 10, 2000, np.uint8)}
    colours = random.randint(0, 256, (10, 3), np.uint8)
    for part in ("train", "test"):
        pixels = colours[arrays[f"y_{part}"]][:, np.newaxis, np.newaxis]
        arrays[f"x_{part}"] = np.tile(pixels, (1, 32, 32, 1))
    _save(path, {**arrays, "y_train_all": whole})
    planes = arrays["x_train"].transpose(0, 3, 1, 2).reshape(10_000, -1)
    first = np.concatenate([arrays["y_train"][:, np.newaxis], planes], axis=1).tobytes()
    published = ((CIFAR10.train[0][0], md5_of([first])), *CIFAR10.train[1:])
    return replace(CIFAR10, train=published)


def _write_dogs(path: Path, random: np.random.RandomState) -> None:
    labels = GOLDEN["dogs_labels"]
    features = random.standard_normal((120, 768))[labels]
    features += random.standard_normal(features.shape)
    features = (features - features.mean(1, keepdims=True)) / features.std(1, keepdims=True)
    features = random.uniform(0.5, 1.5, 768) * features + random.uniform(0.5, 1.5, 768)
    arrays = {"x": features.astype(np.float32), "y": labels, "client": GOLDEN["dogs_clients"]}
    _save(path, arrays)


def _save(path: Path, arrays: dict[str, Any]) -> None:
    savez: Any = np.savez  # its annotation does not allow for arrays given by **
    savez(path, **arrays)

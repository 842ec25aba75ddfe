"""CIFAR-10 from its binary version, which needs no unpickling.

Each of the six files is 10,000 records of 3,073 bytes: the label, then the 32 x 32 image as three
planes, red, green and blue. The published python version is a pickle and is never opened.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.checksums import check_md5, check_size, md5_of
from fedhaw.data.dataset import Dataset, from_arrays
from fedhaw.data.download import PublishedFile, fetch
from fedhaw.data.errors import DataError
from fedhaw.data.source import Search
from fedhaw.data.tars import members, opened
from fedhaw.listing import listed

SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE

PACKED = PublishedFile(
    "cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "c32a1d4ab5d03f1284b67883e8d87530",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CifarFiles:
    """CIFAR-10 in the files of its binary version, unpacked or in the published archive.

    Attributes:
        train: name and MD5 of each training file, in order.
        test: name and MD5 of the test file.
        records: images per file.
        packed: the archive.
        places: where the files may lie below a folder of data.
        archives: names of an .npz that holds its beginning, in the published order.
        classes: how many there are.
    """

    train: tuple[tuple[str, str], ...]
    test: tuple[str, str]
    records: int = 10_000
    packed: PublishedFile = PACKED
    places: tuple[str, ...] = (
        "cifar-10-batches-bin",
        "cifar10/cifar-10-batches-bin",
        "cifar10",
        "",
    )
    archives: tuple[str, ...] = ("cifar10.npz", "cifar10_12k.npz")
    classes: int = 10

    @property
    def all(self) -> tuple[tuple[str, str], ...]:
        """Name and MD5 of every file, the test file last."""
        return (*self.train, self.test)

    def find(self, folder: Path, search: Search) -> Dataset | None:
        """The data set in a folder; see `Source`."""
        if (folder / self.test[0]).is_file():
            return self.read_folder(folder)
        packed = folder / self.packed.name
        return self.read_tar(packed) if packed.is_file() else None

    def fetch(self, folder: Path, progress: bool) -> None:
        """A download of the archive, which is used as it comes."""
        fetch(self.packed, folder, progress)

    def read_folder(self, folder: Path) -> Dataset:
        """The data set in the six unpacked files of a folder."""
        content = {}
        for name, _ in self.all:
            path = folder / name
            if not path.is_file():
                raise DataError(
                    f"{path} is missing; put all of the binary version of CIFAR-10 there."
                )
            check_size(path.stat().st_size, self.records * RECORD, path)
            content[name] = path.read_bytes()
        return self._assemble(content, folder)

    def read_tar(self, path: Path) -> Dataset:
        """The six files, read straight out of the published archive; nothing is unpacked."""
        content = {}
        wanted = dict(self.all)
        with opened(path) as archive:
            for member in members(archive, path):
                name = Path(member.name).name
                if name in wanted and (file := archive.extractfile(member)):
                    check_size(member.size, self.records * RECORD, path / member.name)
                    content[name] = file.read()
        if missing := wanted.keys() - content.keys():
            raise DataError(
                f"{path} lacks {', '.join(sorted(missing))}; it must be the binary version of "
                "CIFAR-10."
            )
        return self._assemble(content, path)

    def adopt(self, dataset: Dataset, path: Path) -> Dataset:
        """The first images from an archive, as many whole files as they fill being checked."""
        if dataset.x_train.dtype != np.uint8 or dataset.x_train.shape[1:] != (SIDE, SIDE, 3):
            raise DataError(
                f"{path} holds {dataset.x_train.dtype} of shape {dataset.x_train.shape[1:]}, not "
                f"CIFAR-10's uint8 images of shape {(SIDE, SIDE, 3)}."
            )
        parts = (
            (dataset.x_train, dataset.y_train, self.train),
            (dataset.x_test, dataset.y_test, (self.test,)),
        )
        for images, labels, published in parts:
            if len(images) > self.records * len(published):
                raise DataError(
                    f"{path} holds more images than CIFAR-10 has; is it another data set?"
                )
            for index, (name, md5) in enumerate(published):
                whole = slice(index * self.records, (index + 1) * self.records)
                if whole.stop <= len(images):
                    found = md5_of(_records(images[whole], labels[whole]))
                    check_md5(found, md5, f"The part of {path} that should equal {name}")
        here, all_here = len(dataset.y_train), self.records * len(self.train)
        if here < all_here:
            _log.warning(
                "%s holds %s of CIFAR-10's %s training and %s of its %s test images.",
                path, here, all_here, len(dataset.y_test), self.records,
            )  # fmt: skip
        return dataset

    def _assemble(self, content: dict[str, bytes], origin: Path) -> Dataset:
        for name, md5 in self.all:
            check_md5(md5_of([content[name]]), md5, f"{name} in {origin}")
        train, test = (
            np.concatenate([np.frombuffer(content[name], np.uint8) for name, _ in part]).reshape(
                -1, RECORD
            )
            for part in (self.train, (self.test,))
        )
        return from_arrays(
            _images(train), train[:, 0], _images(test), test[:, 0], "cifar10", classes=self.classes
        )


CIFAR10 = CifarFiles(
    train=(
        ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
        ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
    ),
    test=("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
)
listed(__name__, "cifar10")(CIFAR10)


def _images(records: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, 32, 32, 3) images of (N, 3073) records."""
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def _records(images: NDArray[np.generic], labels: NDArray[np.int64]) -> Iterator[memoryview]:
    """The bytes of the binary file that would hold these images."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    records = np.concatenate(
        [labels[:, np.newaxis], planes], axis=1, dtype=np.uint8, casting="unsafe"
    )
    yield records.data.cast("B")

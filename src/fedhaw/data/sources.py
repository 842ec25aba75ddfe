"""Data sets by name: where their files are looked for, and what happens when they are missing.

Folders are searched in this order: the `data_dir` given, $FEDHAW_DATA, a cache folder of the user.
What is found is checked against the published checksums. What is missing is downloaded into the
first of these folders that was named.
"""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedhaw.data import dogs
from fedhaw.data.archives import load_archive
from fedhaw.data.cifar import CIFAR10, check_cifar_arrays, read_cifar_folder, read_cifar_tar
from fedhaw.data.cifar import CLASSES as CIFAR_CLASSES
from fedhaw.data.dataset import Dataset, from_arrays
from fedhaw.data.download import PublishedFile, fetch
from fedhaw.data.errors import DataError
from fedhaw.data.features import VIT_B16, frozen_features
from fedhaw.data.mnist import (
    CLASSES,
    FASHION_MNIST,
    MNIST,
    IdxFiles,
    check_idx_arrays,
    fetch_idx,
    find_idx,
    mnist_5k,
    read_idx_files,
)
from fedhaw.names import OWN, is_reference, make, no_such

ENVIRONMENT = "FEDHAW_DATA"

CIFAR10_BINARY = PublishedFile(
    "cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "c32a1d4ab5d03f1284b67883e8d87530",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Search:
    """Where to look, and what may be done when nothing is found.

    Attributes:
        folders: searched in order; the first is where downloads go.
        download: whether missing files may be fetched.
        progress: whether to show progress bars.
        backbone: the ViT for images.
    """

    folders: tuple[Path, ...]
    download: bool
    progress: bool
    backbone: str

    def places(self, *below: str) -> Iterator[Path]:
        """Each folder's places `below` it; a folder that is such a place itself counts too."""
        for folder in self.folders:
            yield from (folder / place for place in below)
            for first, *rest in (Path(place).parts for place in below):
                if folder.name == first:
                    yield folder.joinpath(*rest)

    def target(self, name: str) -> Path:
        """Where files of the data set `name` are put.

        Raises:
            DataError: nothing may be downloaded.
        """
        if not self.download:
            searched = ", ".join(str(folder) for folder in self.folders)
            raise DataError(
                f"{name} was not found in {searched}; put its published files into "
                f"{self.folders[0] / name}, or allow downloads."
            )
        return self.folders[0] / name


def load(
    name_or_path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = True,
    backbone: str = VIT_B16,
) -> Dataset:
    """The data set behind a name or a path.

    Args:
        name_or_path: "mnist-5k" (comes with the installation), "mnist", "fashion-mnist",
            "cifar10", "stanford-dogs", an .npz file (see `fedhaw.data.archives`), or where a user's
            own function that returns a `Dataset` stands, such as `my_data.py:digits`; it is given
            `data_dir` if it has such a parameter.
        data_dir: folder to look in first, and to download to.
        download: fetch what is missing, data or weights, from its public source.
        progress: show progress bars, if there is a terminal to show them on.
        backbone: the ViT that turns Stanford Dogs' images into features: a name on the Hugging
            Face hub, or a folder.

    Raises:
        DataError: no such data set, or its files are missing, damaged, or not the published ones.
    """
    name = os.fspath(name_or_path)
    if name == "mnist-5k":  # needs no folder, so do not look for any
        return mnist_5k()
    if is_reference(name):
        return make(name, Dataset, data_dir=data_dir)
    search = _Search(search_folders(data_dir), download, progress, backbone)
    if source := _SOURCES.get(name):
        return source(search)
    if not name.endswith(".npz"):
        raise DataError(no_such("data set", name, names(), f"a file ending in .npz, or {OWN}"))
    places = [Path(name), *(folder / name for folder in search.folders)]
    return load_archive(next((path for path in places if path.is_file()), places[0]))


def names() -> tuple[str, ...]:
    """Every data set that `load` knows by name."""
    return ("mnist-5k", *_SOURCES)


def search_folders(data_dir: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Where files are looked for, in order; downloads go to the first."""
    import pooch

    named = (data_dir, os.environ.get(ENVIRONMENT), pooch.os_cache("fedhaw"))
    return tuple(Path(folder).expanduser() for folder in named if folder)


def _load_mnist(search: _Search) -> Dataset:
    # Loose idx files in a folder are taken for MNIST's; Fashion-MNIST's have the same names.
    places = [*search.places("mnist", "MNIST/raw"), *search.folders]
    return _load_idx(search, MNIST, places, ("mnist.npz",))


def _load_fashion_mnist(search: _Search) -> Dataset:
    places = [*search.places("fashion-mnist", "fashion_mnist", "FashionMNIST/raw")]
    archives = ("fashion-mnist.npz", "fashion_mnist.npz")
    return _load_idx(search, FASHION_MNIST, places, archives)


def _load_idx(
    search: _Search, published: IdxFiles, places: list[Path], archives: tuple[str, ...]
) -> Dataset:
    for place in places:
        if paths := find_idx(place, published):
            return read_idx_files(paths, published)
    if archive := _find_file(search, *archives):
        dataset = load_archive(archive, published.name, CLASSES)
        check_idx_arrays(dataset, archive, published)
        return dataset
    paths = fetch_idx(search.target(published.name), published, search.progress)
    return read_idx_files(paths, published)


def _load_cifar10(search: _Search) -> Dataset:
    for place in [
        *search.places("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10"),
        *search.folders,
    ]:
        if (place / CIFAR10.test[0]).is_file():
            return read_cifar_folder(place, CIFAR10)
    packed = CIFAR10_BINARY.name
    if archive := _find_file(search, packed, f"cifar10/{packed}"):
        return read_cifar_tar(archive, CIFAR10)
    if archive := _find_file(search, "cifar10.npz", "cifar10_12k.npz"):
        dataset = load_archive(archive, classes=CIFAR_CLASSES)
        check_cifar_arrays(dataset, archive, CIFAR10)
        whole = CIFAR10.records * len(CIFAR10.train)
        if len(dataset.y_train) < whole:
            _log.warning(
                "%s holds %s of CIFAR-10's %s training and %s of its %s test images.",
                archive,
                len(dataset.y_train),
                whole,
                len(dataset.y_test),
                CIFAR10.records,
            )
        return dataset
    archive = fetch(CIFAR10_BINARY, search.target("cifar10"), search.progress)
    return read_cifar_tar(archive, CIFAR10)


def _load_stanford_dogs(search: _Search) -> Dataset:
    places = search.places("stanford-dogs", "stanford_dogs", "StanfordDogs")
    for place in (*places, *search.folders):
        if images := dogs.find_dogs(place):
            return _dogs_features(images, search)
    if archive := _find_file(search, "stanford-dogs.npz", "dogs_vit_features.npz"):
        dataset = load_archive(archive, classes=dogs.CLASSES)
        _log.warning("Using the features of %s as they are: %r.", archive, dataset)
        return dataset
    target = search.target("stanford-dogs")
    dogs.fetch_dogs(target, search.progress)
    images = dogs.find_dogs(target)
    assert images is not None  # fetch_dogs put them there
    return _dogs_features(images, search)


def _dogs_features(images: dogs.DogImages, search: _Search) -> Dataset:
    # Features go where this user may write, which a shared folder of images need not be.
    cache = search.folders[-1] / "features"
    train, test = (
        frozen_features(
            part, cache, search.backbone, download=search.download, progress=search.progress
        )
        for part in (images.train, images.test)
    )
    return from_arrays(
        train,
        images.train.labels,
        test,
        images.test.labels,
        name="stanford-dogs",
        classes=images.classes,
    )


def _find_file(search: _Search, *candidates: str) -> Path | None:
    """The first candidate that exists; better candidates come first within a folder."""
    paths = (folder / name for folder in search.folders for name in candidates)
    return next((path for path in paths if path.is_file()), None)


_SOURCES: dict[str, Callable[[_Search], Dataset]] = {
    "mnist": _load_mnist,
    "fashion-mnist": _load_fashion_mnist,
    "cifar10": _load_cifar10,
    "stanford-dogs": _load_stanford_dogs,
}

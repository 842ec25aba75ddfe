"""Stanford Dogs: 20,580 photographs of 120 breeds, as published or as class folders.

Published, a folder holds the images, `Images/<breed>/*.jpg` or `images.tar` as it comes, and the
division into 12,000 for training and 8,580 for testing, `train_list.mat` and `test_list.mat` or
`lists.tar` as it comes. Otherwise `train/<breed>/*.jpg` and `test/<breed>/*.jpg` will do.
"""

import io
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.checksums import check_md5, md5_of
from fedhaw.data.dataset import Dataset, from_arrays
from fedhaw.data.download import PublishedFile, fetch
from fedhaw.data.errors import DataError, reading
from fedhaw.data.features import frozen_features
from fedhaw.data.images import ImageFolder, ImageStore, ImageTar, LabelledImages
from fedhaw.data.source import Search
from fedhaw.data.tars import members, opened
from fedhaw.errors import importing
from fedhaw.listing import listed

CLASSES = 120
PARTS = ("train", "test")

_PAGE = "http://vision.stanford.edu/aditya86/ImageNetDogs"
IMAGES = PublishedFile("images.tar", (f"{_PAGE}/images.tar",), "1bb1f2a596ae7057f99d7d75860002ef")
LISTS = PublishedFile("lists.tar", (f"{_PAGE}/lists.tar",), "edbb9f16854ec66506b5f09b583e0656")
LIST_SUMS = {
    "train_list.mat": "d37f459eacccfa4d299373dffba9648d",
    "test_list.mat": "66f60c285efbc3ce2fb7893bd26c6b80",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StanfordDogs:
    """The data set: features of its images; see `Source` for the attributes."""

    places: tuple[str, ...] = ("stanford-dogs", "stanford_dogs", "StanfordDogs", "")
    archives: tuple[str, ...] = ("stanford-dogs.npz", "dogs_vit_features.npz")
    classes: int = CLASSES

    def find(self, folder: Path, search: Search) -> Dataset | None:
        """The features of the images in a folder, whose classes may also be folders."""
        if (folder / "train").is_dir() and (folder / "test").is_dir():
            return _features(*_class_folders(folder), search)
        store: ImageStore
        if (folder / "Images").is_dir():
            store = ImageFolder(folder / "Images")
        elif (folder / "images.tar").is_file():
            store = ImageTar(folder / "images.tar", root="Images")
        else:
            return None
        known = frozenset(store.names)
        train, test = (_listed(folder, f"{part}_list.mat", store, known) for part in PARTS)
        return _features(train, test, self.classes, search)

    def adopt(self, dataset: Dataset, path: Path) -> Dataset:
        """The features of an archive, for whose images nobody can vouch."""
        _log.warning("Using the features of %s as they are: %r.", path, dataset)
        return dataset

    def fetch(self, folder: Path, progress: bool) -> None:
        """A download of the two archives, which are used as they come."""
        for file in (LISTS, IMAGES):  # the small one first: without it the other is of no use
            fetch(file, folder, progress)


STANFORD_DOGS = listed(__name__, "stanford-dogs")(StanfordDogs())


def _features(train: LabelledImages, test: LabelledImages, classes: int, search: Search) -> Dataset:
    # Features go where this user may write, which a shared folder of images need not be.
    cache = search.folders[-1] / "features"
    x_train, x_test = (
        frozen_features(
            part, cache, search.backbone, download=search.download, progress=search.progress
        )
        for part in (train, test)
    )
    return from_arrays(
        x_train, train.labels, x_test, test.labels, name="stanford-dogs", classes=classes
    )


def _listed(folder: Path, name: str, store: ImageStore, known: frozenset[str]) -> LabelledImages:
    """The images and labels that one of the published lists names."""
    content, origin = _list_content(folder, name)
    check_md5(md5_of([content]), LIST_SUMS[name], origin)
    names, labels = _parse_list(content, origin)
    for image in names:
        if image not in known:
            raise DataError(
                f"{origin} lists {image!r}, which is not among the {len(known)} images of "
                f"{folder}; put all of images.tar there."
            )
    return LabelledImages(store, names, labels)


def _list_content(folder: Path, name: str) -> tuple[bytes, str]:
    """The bytes of a .mat list, loose or within lists.tar, and where they came from."""
    loose, packed = folder / name, folder / "lists.tar"
    if loose.is_file():
        with reading(loose):
            return loose.read_bytes(), str(loose)
    if packed.is_file():
        with opened(packed) as archive:
            for member in members(archive, packed):
                if Path(member.name).name == name and (file := archive.extractfile(member)):
                    return file.read(), f"{name} in {packed}"
    raise DataError(
        f"{folder} holds images of Stanford Dogs but not {name}; put it, or lists.tar from "
        f"{_PAGE}, there too."
    )


def _parse_list(content: bytes, origin: str) -> tuple[list[str], NDArray[np.int64]]:
    with importing(f"Reading {origin}", "vit", DataError):
        from scipy.io import loadmat
    try:
        table = loadmat(io.BytesIO(content), variable_names=("file_list", "labels"))
        names = [str(cell.item()) for cell in table["file_list"].ravel()]
        labels = table["labels"].ravel().astype(np.int64) - 1  # MATLAB counts from 1
    except Exception as error:  # a damaged .mat makes scipy raise nearly anything
        raise DataError(f"{origin} is damaged ({error}); replace it by a fresh copy.") from error
    if len(names) != len(labels) or not len(names) or labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(f"{origin} does not give each image a label in 1..{CLASSES}; replace it.")
    return names, labels


def _class_folders(folder: Path) -> tuple[LabelledImages, LabelledImages, int]:
    """`train/<class>/` and `test/<class>/`; classes are numbered in alphabetical order."""
    stores = {part: ImageFolder(folder / part) for part in PARTS}
    found = {
        part: sorted({name.split("/")[0] for name in store.names if "/" in name})
        for part, store in stores.items()
    }
    classes = found["train"]
    if not classes or not set(found["test"]) <= set(classes) or not found["test"]:
        raise DataError(
            f"The folders below {folder}/train and {folder}/test must be the same classes, each "
            "with images (.jpg or .png) in it; complete them."
        )
    numbers = {name: number for number, name in enumerate(classes)}

    def labelled(part: str) -> LabelledImages:
        names = [name for name in stores[part].names if "/" in name]
        labels = np.array([numbers[name.split("/")[0]] for name in names], dtype=np.int64)
        return LabelledImages(stores[part], names, labels)

    return labelled("train"), labelled("test"), len(classes)

"""Stanford Dogs: 20,580 photographs of 120 breeds, as published or as class folders.

Published, a folder holds the images, `Images/<breed>/*.jpg` or `images.tar` as it comes, and the
division into 12,000 for training and 8,580 for testing, `train_list.mat` and `test_list.mat` or
`lists.tar` as it comes. Otherwise `train/<breed>/*.jpg` and `test/<breed>/*.jpg` will do.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.checksums import check_md5, md5_of
from fedhaw.data.download import PublishedFile, fetch
from fedhaw.data.errors import DataError, reading
from fedhaw.data.images import ImageFolder, ImageStore, ImageTar, LabelledImages
from fedhaw.data.tars import members, opened
from fedhaw.errors import importing

CLASSES = 120

_PAGE = "http://vision.stanford.edu/aditya86/ImageNetDogs"
IMAGES = PublishedFile("images.tar", (f"{_PAGE}/images.tar",), "1bb1f2a596ae7057f99d7d75860002ef")
LISTS = PublishedFile("lists.tar", (f"{_PAGE}/lists.tar",), "edbb9f16854ec66506b5f09b583e0656")
LIST_SUMS = {
    "train_list.mat": "d37f459eacccfa4d299373dffba9648d",
    "test_list.mat": "66f60c285efbc3ce2fb7893bd26c6b80",
}


@dataclass(frozen=True, eq=False)
class DogImages:
    """The images of both parts.

    Attributes:
        train: training images.
        test: test images.
        classes: how many breeds.
    """

    train: LabelledImages
    test: LabelledImages
    classes: int


def find_dogs(folder: Path) -> DogImages | None:
    """Stanford Dogs in a folder; None when its images are not there.

    Raises:
        DataError: something of it is there, but not all, or not as it should be.
    """
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        return _class_folders(folder)
    store: ImageStore
    if (folder / "Images").is_dir():
        store = ImageFolder(folder / "Images")
    elif (folder / "images.tar").is_file():
        store = ImageTar(folder / "images.tar", root="Images")
    else:
        return None
    known = frozenset(store.names)
    return DogImages(
        train=_listed(folder, "train_list.mat", store, known),
        test=_listed(folder, "test_list.mat", store, known),
        classes=CLASSES,
    )


def fetch_dogs(folder: Path, progress: bool = True) -> None:
    """A download of the two archives into a folder; they are used as they come.

    Raises:
        DownloadError: they cannot be had; the sentence says what to put where.
    """
    for file in (LISTS, IMAGES):  # the small one first: without it the other is of no use
        fetch(file, folder, progress)


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


def _class_folders(folder: Path) -> DogImages:
    """`train/<class>/` and `test/<class>/`; classes are numbered in alphabetical order."""
    stores = {part: ImageFolder(folder / part) for part in ("train", "test")}
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

    return DogImages(labelled("train"), labelled("test"), len(classes))

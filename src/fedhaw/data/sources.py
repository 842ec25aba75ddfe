"""Data sets by name: where their files are looked for, and what happens when they are missing.

Folders are searched in this order: the `data_dir` given, $FEDHAW_DATA, a cache folder of the user.
What is found is checked against the published checksums. What is missing is downloaded into the
first of these folders that was named.
"""

import os
from collections.abc import Callable
from pathlib import Path

from fedhaw.data.archives import load_archive
from fedhaw.data.dataset import Dataset
from fedhaw.data.errors import DataError
from fedhaw.data.features import VIT_B16
from fedhaw.data.source import Search, Source
from fedhaw.listing import Listing
from fedhaw.names import OWN, is_reference, make, no_such

ENVIRONMENT = "FEDHAW_DATA"

SOURCES: dict[str, Source | Callable[[], Dataset]] = dict(Listing("data"))
"""The data sets by name: where each is published, or a function that has it."""


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
        name_or_path: one of `SOURCES`, an .npz file (see `fedhaw.data.archives`), or where a user's
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
    source = SOURCES.get(name)
    if callable(source):  # it needs no folder, so do not look for any
        return source()
    if is_reference(name):
        return make(name, Dataset, data_dir=data_dir)
    search = Search(search_folders(data_dir), download, progress, backbone)
    if source:
        return _published(name, source, search)
    if not name.endswith(".npz"):
        raise DataError(no_such("data set", name, names(), f"a file ending in .npz, or {OWN}"))
    places = [Path(name), *(folder / name for folder in search.folders)]
    return load_archive(next((path for path in places if path.is_file()), places[0]))


def names() -> tuple[str, ...]:
    """Every data set that `load` knows by name."""
    return tuple(SOURCES)


def search_folders(data_dir: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Where files are looked for, in order; downloads go to the first."""
    import pooch

    named = (data_dir, os.environ.get(ENVIRONMENT), pooch.os_cache("fedhaw"))
    return tuple(Path(folder).expanduser() for folder in named if folder)


def _published(name: str, source: Source, search: Search) -> Dataset:
    """A published data set from its files, from an archive, or else from the network."""
    for place in search.places(*source.places):
        if dataset := source.find(place, search):
            return dataset
    archives = (folder / archive for folder in search.folders for archive in source.archives)
    if archive := next((path for path in archives if path.is_file()), None):
        return source.adopt(load_archive(archive, classes=source.classes), archive)
    target = search.target(name)
    source.fetch(target, search.progress)
    fetched = source.find(target, search)
    assert fetched is not None
    return fetched

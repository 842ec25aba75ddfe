"""What a published data set is: where its files may lie, how they are read, whence they come."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedhaw.data.dataset import Dataset
from fedhaw.data.errors import DataError


@dataclass(frozen=True)
class Search:
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
            for parts in (Path(place).parts for place in below):
                if parts[:1] == (folder.name,):
                    yield folder.joinpath(*parts[1:])

    def target(self, name: str) -> Path:
        """Where files of the data set `name` are put."""
        if not self.download:
            searched = ", ".join(str(folder) for folder in self.folders)
            raise DataError(
                f"{name} was not found in {searched}; put its published files into "
                f"{self.folders[0] / name}, or allow downloads."
            )
        return self.folders[0] / name


class Source(Protocol):
    """A published data set."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where its files may lie below a folder of data; "" is that folder itself."""

    @property
    def archives(self) -> tuple[str, ...]:
        """What an .npz that holds it may be called, better ones first."""

    @property
    def classes(self) -> int:
        """How many classes it has."""

    def find(self, folder: Path, search: Search) -> Dataset | None:
        """The data set whose files lie in a folder; None when they do not.

        Raises:
            DataError: only some are there, or they are damaged or not the published ones.
        """

    def adopt(self, dataset: Dataset, path: Path) -> Dataset:
        """What an archive holds, checked.

        Raises:
            DataError: it is something else.
        """

    def fetch(self, folder: Path, progress: bool) -> None:
        """A download of its files into a folder, where `find` finds them.

        Raises:
            DownloadError: they cannot be had; the sentence says what to put where.
        """

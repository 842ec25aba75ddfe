"""Tar archives, which are read member by member and never unpacked to disk."""

import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from fedhaw.data.errors import DataError, reading


@contextmanager
def opened(path: Path, mode: Literal["r", "r:"] = "r") -> Iterator[tarfile.TarFile]:
    """An archive that is read in the block.

    Args:
        path: the archive.
        mode: "r:" for one that must not be compressed.
    """
    with reading(path, tarfile.TarError, EOFError, zlib.error), tarfile.open(path, mode) as archive:
        yield archive


def members(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """The members of an archive; a hostile one, which names a place outside itself, is refused."""
    for member in archive:
        place = Path(member.name)
        if place.is_absolute() or ".." in place.parts or not (member.isfile() or member.isdir()):
            raise DataError(
                f"{path} holds {member.name!r}, which is a link or lies outside the archive; "
                "replace it by the published file."
            )
        yield member

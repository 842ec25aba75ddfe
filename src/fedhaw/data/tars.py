"""Tar archives are read member by member and never unpacked; this says which are refused."""

import tarfile
from pathlib import Path

from fedhaw.data.errors import DataError


def refuse_outside(member: tarfile.TarInfo, path: Path) -> None:
    """A check of an archive: a hostile one, which names a place outside itself, is refused.

    Raises:
        DataError: the member's name is absolute or climbs up, or it is a link or a device.
    """
    place = Path(member.name)
    if place.is_absolute() or ".." in place.parts or not (member.isfile() or member.isdir()):
        raise DataError(
            f"{path} holds {member.name!r}, which is a link or lies outside the archive; "
            "replace it by the published file."
        )

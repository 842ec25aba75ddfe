"""Telling the file one expects from another of the same name."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fedhaw.data.errors import DataError

_CHUNK = 1 << 20


def md5_of(pieces: Iterable[bytes | memoryview]) -> str:
    """MD5 over pieces of bytes, as if they were one.

    The publishers of these data sets give MD5 sums, so MD5 it is: it guards against damage and
    mix-ups, which is what happens, and every reader after it still distrusts its input.
    """
    digest = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def md5_of_file(path: Path) -> str:
    """MD5 of a file of any size."""
    with path.open("rb") as file:
        return md5_of(iter(lambda: file.read(_CHUNK), b""))


def check_md5(found: str, expected: str, what: str) -> None:
    """A check of content: what is not as it should be is refused.

    Args:
        found: MD5 of what is there.
        expected: MD5 of what should be there.
        what: the file, or the part of a file, for the message.
    """
    if found != expected:
        raise DataError(
            f"{what} is not the published file: its MD5 is {found}, not {expected}; delete it so "
            "that it is fetched again, or load data of your own as FILE.npz."
        )


def check_size(found: int, expected: int, path: Path) -> None:
    """A check of a file before it is read: one of the wrong length is refused."""
    if found != expected:
        raise DataError(
            f"{path} has {found:,} bytes instead of {expected:,}, so it is incomplete or another "
            "file; delete it so that it is fetched again."
        )

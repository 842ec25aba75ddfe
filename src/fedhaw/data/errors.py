"""What goes wrong with data, said in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedhaw.errors import FedhawError


class DataError(FedhawError, ValueError):
    """Data that cannot be used as it is: a damaged file, arrays that do not fit, a bad split."""


class DownloadError(DataError):
    """A file could not be fetched; the message says which file to put where."""


@contextmanager
def reading(
    path: Path,
    *damages: type[Exception],
    damaged: str = "is damaged ({}); replace it by a fresh copy.",
) -> Iterator[None]:
    """A block that reads a file; what goes wrong in it becomes a DataError that names the file.

    Args:
        path: the file.
        damages: what is raised where the file is not what it should be.
        damaged: the end of the sentence on that.
    """
    try:
        yield
    except DataError:
        raise
    except damages as error:
        raise DataError(f"{path} {damaged.format(error)}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error

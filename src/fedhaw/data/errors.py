"""What goes wrong with data, said in one sentence."""

from fedhaw.errors import FedhawError


class DataError(FedhawError, ValueError):
    """Data that cannot be used as it is: a damaged file, arrays that do not fit, a bad split."""


class DownloadError(DataError):
    """A file could not be fetched; the message says which file to put where."""

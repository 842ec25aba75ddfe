"""The one error of histories."""

from fedhaw.errors import FedhawError


class HistoryError(FedhawError, ValueError):
    """A file that is missing, is not a history, or is not the one that is needed."""

"""The one exception every part of fedhaw raises for a mistake its user can mend."""


class FedhawError(Exception):
    """Something the caller can put right.

    The message is one complete sentence: what was wrong, where, and what to do. The command line
    prints it without a traceback; every more specific error derives from this class.
    """


class MissingExtra(FedhawError, AttributeError):
    """A part of fedhaw was asked for whose packages are not installed; the message says which.

    To `hasattr` such a part is not there.
    """

"""The one exception every part of fedhaw raises for a mistake its user can mend.

Its sentences quote what was given by `shown`, so that a long value never drowns one.
"""


class FedhawError(Exception):
    """Something the caller can put right.

    The message is one complete sentence: what was wrong, where, and what to do. The command line
    prints it without a traceback; every more specific error derives from this class.
    """


class MissingExtra(FedhawError, AttributeError):
    """A part of fedhaw was asked for whose packages are not installed; the message says which.

    To `hasattr` such a part is not there.
    """


def shown(value: object) -> str:
    """A value in at most 60 characters on one line."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # thousands of digits, or of nested lists
        return "too long to be shown"
    return text if len(text) <= 60 else f"{text[:57]}..."

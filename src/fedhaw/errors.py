"""The one exception every part of fedhaw raises for a mistake its user can mend.

Its sentences quote what was given by `shown`, so that a long value never drowns one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 200
"""Characters of a foreign exception's text that are repeated in a sentence."""


def words_of(error: BaseException, longest: int = LONGEST) -> str:
    """The first line of what somebody else's exception says of itself, cut where it is long.

    Its text is made by code that may fail, too; it then says nothing, as "".
    """
    try:
        lines = str(error)[:10_000].strip().splitlines()
    except Exception:
        return ""
    return shortened(lines[0], longest) if lines else ""


def shortened(text: str, longest: int = LONGEST) -> str:
    """A text from elsewhere on one line, cut where it is longer than a sentence bears."""
    line = "".join(sign if sign.isprintable() else " " for sign in text[: longest + 1])
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def named(error: BaseException) -> str:
    """The class of somebody else's exception and what it says of itself."""
    return f"{type(error).__name__}: {words_of(error)}".removesuffix(": ")


class FedhawError(Exception):
    """Something the caller can put right.

    The message is one complete sentence: what was wrong, where, and what to do. The command line
    prints it without a traceback; every more specific error derives from this class.
    """


class MissingExtra(FedhawError, AttributeError):
    """A part of fedhaw was asked for whose packages are not installed; the message says which.

    To `hasattr` such a part is not there.
    """


@contextmanager
def importing(whose: str, extra: str, kind: type[FedhawError] = MissingExtra) -> Iterator[None]:
    """A block that imports what comes with an extra; where that is missing, a sentence says so.

    Args:
        whose: what needs it, to begin the sentence.
        extra: of fedhaw, which brings it.
        kind: of the error.
    """
    try:
        yield
    except ImportError as error:
        name = error.name or "more packages"
        if name.startswith("fedhaw"):
            raise
        raise kind(
            f"{whose} needs {name}, which is not installed; run: pip install 'fedhaw[{extra}]'."
        ) from error


def shown(value: object) -> str:
    """A value in at most 60 characters on one line."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # thousands of digits, or of nested lists
        return "too long to be shown"
    except Exception:  # whoever made it did not expect to be quoted
        return f"a {type(value).__name__}"
    return shortened(text, 60)

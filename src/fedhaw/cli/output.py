"""Where words go: results to standard output, everything else to standard error."""

import json
import math
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from fedhaw.reports import Table


def to_stdout() -> "Console":
    """A console on standard output."""
    from rich.console import Console

    return Console(soft_wrap=not sys.stdout.isatty())


def to_stderr() -> "Console":
    """A console on standard error, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=not sys.stderr.isatty())


def print_json(value: object) -> None:
    """One JSON object, printed; numbers that are not finite become null, as JSON has none.

    What else JSON has none of, such as a path among a rule's options, is described as in a history.
    """
    from fedhaw.description import describe

    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    text = json.dumps(
        _finite(value), indent=2, ensure_ascii=ascii_only, allow_nan=False, default=describe
    )
    print(text)


def print_table(table: "Table") -> None:
    """A table, printed: in colour on a terminal, as plain text elsewhere."""
    from fedhaw.reports import to_rich, to_text

    if sys.stdout.isatty():
        to_stdout().print(to_rich(table))
    else:
        print(to_text(table))


def _finite(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {str(key): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value

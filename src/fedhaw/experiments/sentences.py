"""What pydantic found wrong, said in one sentence a user can act on."""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

Where = Callable[[str], str]
"""How the place of a key is called: `FILE.toml: alpha`, or `--alpha`."""


def first_sentence(
    error: ValidationError, where: Where, known: Sequence[str], origin: str = ""
) -> str:
    """One sentence on the first of the errors.

    Args:
        error: what pydantic raised.
        where: names the place of a top-level key.
        known: every top-level key there is, for suggestions.
        origin: the file, for what concerns no single key.
    """
    # An unknown key is most likely the cause of whatever else is wrong, so it goes first.
    details = sorted(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    detail = details[0]
    keys = [str(part) for part in detail["loc"]]
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(keys, where, known)
    place = where(".".join(keys)) if keys else origin
    if kind == "value_error":
        reason = str(context["error"])
        return f"{place}: {reason}" if place else reason
    return f"{place} is {_shown(detail['input'])}; it must be {_allowed(kind, context)}."


def unknown_key(keys: Sequence[str], where: Where, known: Sequence[str]) -> str:
    """One sentence on a key that does not exist."""
    wrong = ".".join(keys)
    if len(keys) > 1:
        return f"{where(wrong)} does not exist; a rule has a name and options."
    close = difflib.get_close_matches(wrong, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}."
    return f"{where(wrong)} does not exist; {hint}"


def _allowed(kind: str, context: dict[str, Any]) -> str:
    match kind:
        case "greater_than":
            return f"above {context['gt']:g}"
        case "greater_than_equal":
            return f"{context['ge']:g} or more"
        case "less_than":
            return f"below {context['lt']:g}"
        case "less_than_equal":
            return f"{context['le']:g} or less"
        case "int_type" | "int_parsing" | "int_from_float":
            return "a whole number"
        case "float_type" | "float_parsing":
            return "a number"
        case "finite_number":
            return "a finite number"
        case "bool_type" | "bool_parsing":
            return "true or false"
        case "string_type":
            return "text in quotes"
        case "literal_error":
            return f"one of {context['expected'].replace(' or ', ', ')}"
        case "list_type" | "tuple_type":
            return "a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "a table"
        case _:
            return f"another value ({kind.replace('_', ' ')})"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""The rules by name: those of fedhaw from their table, a user's own by where it stands."""

from dataclasses import is_dataclass
from pathlib import PurePath
from typing import Any, TypeGuard

from fedhaw import names
from fedhaw.errors import FedhawError
from fedhaw.rules.base import Rule
from fedhaw.rules.table import TABLE, RuleEntry


class UnknownRule(FedhawError, ValueError):
    """A rule or an option of a rule that does not exist, or a value it cannot have."""


RULES = {entry.name: entry for entry in TABLE}
"""Every rule of fedhaw, in the order in which they are listed."""

OF_THE_LETTER = tuple(entry.name for entry in TABLE if entry.of_the_letter)

DEFAULT = "fedhaw-auto"
"""The rule of whoever names none."""

_NAME_OF = {entry.cls: entry.name for entry in TABLE}


def find(name: str) -> RuleEntry:
    """The rule of a name.

    Args:
        name: one of `RULES`, or where a user's own stands, such as `my_rule.py:MyRule`.

    Raises:
        UnknownRule: there is no such rule; the sentence suggests one.
        UnknownName: there is nothing to be loaded there.
    """
    if name in RULES:
        return RULES[name]
    if not names.is_reference(name):
        raise UnknownRule(names.no_such("rule", name, list(RULES)))
    cls = names.load(name)
    if not _is_rule(cls):
        raise UnknownRule(
            f"{name} is not a rule; a rule is a class with @dataclass(frozen=True) and the methods "
            "init and aggregate, see docs/adding-a-rule.md."
        )
    if cls in _NAME_OF:
        return RULES[_NAME_OF[cls]]
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        place = PurePath(place).as_posix()  # ./my_rule.py is my_rule.py
    short = name_of(cls)
    title = cls.__name__ if short == cls.__name__.lower() else f"own {cls.__name__}"
    return RuleEntry(short, title, cls, reference=f"{place}:{attribute}")


def name_of(cls: type) -> str:
    """The name of a rule's class in histories: the table's, or the class's own in lower case.

    A user's class is never called as a rule of the table is, which has its colour in reports.
    """
    own = cls.__name__.lower()
    return _NAME_OF.get(cls, f"own-{own}" if own in RULES else own)


def title_of(name: str) -> str:
    """How a rule's name is printed; a name that is not of the table as it is."""
    return RULES[name].title if name in RULES else name


def _is_rule(thing: object) -> TypeGuard[type[Rule[Any]]]:
    if not isinstance(thing, type) or not is_dataclass(thing):
        return False
    return all(callable(getattr(thing, method, None)) for method in ("init", "aggregate"))

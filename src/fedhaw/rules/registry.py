"""The rules by name: those that the files of this package list, a user's own by where it stands."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from pathlib import PurePath
from typing import Any, TypeGuard

from fedhaw import names
from fedhaw.errors import FedhawError
from fedhaw.listing import Listing
from fedhaw.rules.base import Rule
from fedhaw.rules.guards import refusing_other_states


class UnknownRule(FedhawError, ValueError):
    """A rule or an option of a rule that does not exist, or a value it cannot have."""


@dataclass(frozen=True)
class RuleEntry:
    """One rule, and what it is called.

    Attributes:
        name: in lower case, in histories and before the dot of an option.
        title: how it is printed.
        cls: its dataclass.
        reference: where a user's own rule stands; "" for the rules of fedhaw.
    """

    name: str
    title: str
    cls: type[Rule[Any]]
    reference: str = ""

    @property
    def key(self) -> str:
        """What finds this rule again: its name, or where it stands."""
        return self.reference or self.name

    @property
    def folder(self) -> str:
        """The folder of its runs, such as `my_rule-myrule` for `my_rule.py:MyRule`."""
        place = self.reference.replace(".py:", ":")
        return re.sub(r"\W+", "-", place)[-100:].strip("-").lower() or self.name


OF_THE_LETTER = ("fedavg", "fedadp", "fedhyper", "fedlws", "fedlaw", "fedhaw")
"""The six that the letter compares, in its order."""

_LISTING: Listing[type[Rule[Any]]] = Listing("rules")

RULES = {
    name: RuleEntry(name, _LISTING.words[name], _LISTING[name])
    for name in dict.fromkeys((*OF_THE_LETTER, *_LISTING))
}
"""Every rule of fedhaw: the letter's first, then the others by name."""

for _entry in RULES.values():
    refusing_other_states(_entry.cls)

DEFAULT = "fedhaw-auto"
"""The rule of whoever names none."""

_NAME_OF = {entry.cls: name for name, entry in RULES.items()}


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


def check_apart(rules: Iterable[RuleEntry]) -> None:
    """A check that rules which run side by side have a folder each.

    Raises:
        UnknownRule: two of users' own would share one.
    """
    place: dict[str, str] = {}
    for rule in rules:
        other = place.setdefault(rule.folder, rule.key)
        if other != rule.key:
            raise UnknownRule(
                f"The runs of {other} and {rule.key} would lie in one folder, {rule.folder}; give "
                "one of the two, its class or its file, another name."
            )


def name_of(cls: type) -> str:
    """The name of a rule's class in histories: the listed one, or the class's own in lower case.

    A user's class is never called as a rule of fedhaw is, which has its colour in reports.
    """
    own = cls.__name__.lower()
    return _NAME_OF.get(cls, f"own-{own}" if own in RULES else own)


def title_of(name: str) -> str:
    """How a rule's name is printed; any other name as it is."""
    return RULES[name].title if name in RULES else name


def _is_rule(thing: object) -> TypeGuard[type[Rule[Any]]]:
    if not isinstance(thing, type) or not is_dataclass(thing):
        return False
    return all(callable(getattr(thing, method, None)) for method in ("init", "aggregate"))

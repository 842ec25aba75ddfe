"""One setting: what it may be, and the sentence for what it may not."""

import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Literal, Self, TypeAlias, Union, get_args, get_origin

from fedhaw.errors import FedhawError, shown

Kind: TypeAlias = Literal["whole number", "number", "text", "switch", "list"]
Panel: TypeAlias = Literal["Federation", "Training", "Machine", "Sweep"]

MOST = 10**9
"""The largest whole number that a setting may be, where nothing smaller is said."""

LONGEST = 255
"""Characters in a name; no file's is longer."""

_KINDS: dict[object, Kind] = {int: "whole number", float: "number", str: "text", bool: "switch"}


class InvalidSetting(FedhawError, ValueError):
    """A setting that does not exist or cannot have this value; the sentence names its place."""


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting; its name, type and help stand where it is declared.

    Attributes:
        default: its value when nothing is said.
        by_data: other defaults, by data set.
        default_text: the default in words, where the value itself would not say it.
        at_least: the smallest number allowed.
        above: all numbers allowed are larger than this one.
        at_most: the largest number allowed.
        besides: a number that is allowed although it is outside of these limits.
        known: names that it may have, for help and completion only.
        choices: the only texts allowed, where there are such and its type does not say them.
        panel: under which heading `--help` lists it.
        objects: what Python may give besides text, in words; "" for nothing else.
        place_only: it says where and how fast a run computes, and changes nothing in the result
            but, at most, its rounding.
        same_values: other texts for one value, which is the one that is kept.
        told_by: the entry of a history's config that says it already, or None.
        later: it came after the first release, so that runs from before do not speak of it; a
            run's description leaves it out where it is as it was then.
        before: what it was then, where that is not its default.
        same_as: the setting of which this is another spelling.
        name: what it is called.
        help: a sentence on what it is.
        kind: of its type.
        optional: whether Python may give None, which is the same as to say nothing.
    """

    default: object = None
    _: KW_ONLY
    by_data: Mapping[str, object] = field(default_factory=dict)
    default_text: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    besides: float | None = None
    known: Collection[str] = ()
    choices: tuple[str, ...] = ()
    panel: Panel = "Federation"
    objects: str = ""
    place_only: bool = False
    same_values: Mapping[str, str] = field(default_factory=dict)
    told_by: str | None = None
    later: bool = False
    before: object = None
    same_as: str | None = None
    name: str = ""
    help: str = ""
    kind: Kind = "text"
    optional: bool = False

    @property
    def unspoken(self) -> object:
        """The value of a later setting that runs from before had without speaking of it."""
        return self.default if self.before is None else self.before

    def of_type(self, name: str, hint: object) -> Self:
        """This setting with the name and the type that it was declared with."""
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        optional = NoneType in parts
        listed = next((part for part in parts if get_origin(part) is Sequence), None)
        single = get_args(listed)[0] if listed else next(p for p in parts if p is not NoneType)
        choices = get_args(single) if get_origin(single) is Literal else self.choices
        kind: Kind = "list" if listed else "text" if choices else _KINDS[single]
        default = list(self.default) if isinstance(self.default, tuple) else self.default
        most = MOST if kind == "whole number" and self.at_most is None else self.at_most
        found = replace(self, name=name, kind=kind, choices=choices, optional=optional)
        return replace(found, at_most=most, default=default)

    def default_for(self, data: object) -> object:
        """The default on a data set, which is given by its name."""
        return self.by_data.get(data, self.default) if isinstance(data, str) else self.default

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def allowed(self) -> str:
        """What it may be, to go after "it must be"."""
        match self.kind:
            case "switch":
                return "true or false"
            case "list":
                any_of = f"any of {_quoted(self.choices)}" if self.choices else "texts"
                return f"a list of {any_of}"
            case "text":
                return f"one of {_quoted(self.choices)}" if self.choices else "text"
        if self.above is not None:
            besides = "" if self.besides is None else f"{self.besides:g}, or "
            return f"{besides}a {self.kind} above {self.above:g}"
        if self.at_most is None:
            return f"a {self.kind}, {self.at_least:g} or more"
        return f"a {self.kind} from {self.at_least:g} to {_digits(self.at_most)}"

    def checked(self, value: object, place: str, *, objects: bool = False) -> object:
        """The value in its own type.

        Args:
            value: what was given.
            place: how the setting is called where it was given, for the sentence.
            objects: whether it comes from Python, where more than text can be given; whoever uses
                such an object judges it.

        Raises:
            InvalidSetting: it cannot be.
        """
        if isinstance(value, os.PathLike) and self.kind == "text" and not self.choices:
            value = os.fspath(value)
        allowed = self._allows(value)
        if not allowed and objects and self.objects and not isinstance(value, str):
            return value
        if not allowed:
            if self.kind == "list" and isinstance(value, (list, tuple)):
                value = next(item for item in value if not self._allows_text(item))
            raise InvalidSetting(f"{place} is {shown(value)}; it must be {self.allowed}.")
        if isinstance(value, str) and max(map(len, value.split("/"))) > LONGEST:
            raise InvalidSetting(
                f"{place} is {shown(value)}; no name is longer than {LONGEST} characters."
            )
        match value:
            case Integral() if self.kind == "whole number":
                return int(value)
            case Real() if self.kind == "number":
                return float(value)
            case str() if self.kind == "text":
                return self.same_values.get(value, value)
            case str() if self.kind == "list":
                return [value]
            case Sequence() if self.kind == "list":
                return list(value)
        return value

    def from_flag(self, text: str) -> object:
        """What a flag's text stands for; a text that is no number is left to `checked`."""
        if self.kind not in ("whole number", "number"):
            return text
        with suppress(ValueError):
            return int(text)
        with suppress(ValueError):
            number = float(text)
            # Thousands of digits are not infinite: they are shown as they were given.
            return text if math.isinf(number) and len(text) > LONGEST else number
        return text

    def _allows(self, value: object) -> bool:
        match self.kind:
            case "switch":
                return isinstance(value, bool)
            case "text":
                return self._allows_text(value)
            case "list":
                items = [value] if isinstance(value, str) else value
                return isinstance(items, Sequence) and all(map(self._allows_text, items))
            case _:
                number = _number(value, whole=self.kind == "whole number")
                return number is not None and self._within(number)

    def _allows_text(self, value: object) -> bool:
        if not isinstance(value, str):
            return False
        return value in self.choices if self.choices else value != "" and "\0" not in value

    def _within(self, number: float) -> bool:
        return number == self.besides or (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and number <= (sys.float_info.max if self.at_most is None else self.at_most)
        )


def _number(value: object, *, whole: bool) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) and not whole else None


def _quoted(choices: Sequence[str]) -> str:
    return ", ".join(repr(choice) for choice in choices)


def _digits(number: float) -> str:
    return f"{number:d}" if isinstance(number, int) else f"{number:g}"

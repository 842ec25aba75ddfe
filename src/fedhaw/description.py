"""What a run is, as plain JSON: written into its history and compared when it is resumed.

The simulator, run folders and Flower all describe a rule by `describe`, so each of them notices
whatever another one does: a changed option, and a changed version of the rule's arithmetic.
"""

import functools
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from typing import Any

import array_api_compat
import numpy as np

from fedhaw.rules.passes import to_numpy
from fedhaw.rules.registry import name_of

_NAMES = {
    "LocalUpdate": "local",
    "LetterUplink": "letter",
    "BurstyUplink": "bursty",
    "LabelUplink": "by-label",
    "HourlyUplink": "hourly",
    "RecordedUplink": "recorded",
}
"""How classes other than rules are called in a history, where lower case is not enough."""

NOT_SET = "not set"
"""How a setting is shown that a description does not have."""

_MAY_CHANGE = ("rounds", "deadline")
"""Settings of a run that may differ when it goes on."""


def describe(thing: object) -> Any:
    """`thing` in numbers, texts, lists and mappings; large contents as a digest.

    Frozen dataclasses (rules, updates, uplinks) give their class, its version and what they compare
    by, but for fields with the metadata "later" that are at their default, which older runs do not
    have. Functions give their name: that they still do the same is the user's word.
    """
    match thing:
        case None | bool() | str():
            return thing
        case np.bool_():
            return bool(thing)
        case Enum():
            return thing.name
        case os.PathLike():
            return os.fspath(thing)
        case int() | np.integer():
            return int(thing)
        case float() | np.floating():
            return float(thing) if math.isfinite(thing) else str(thing)
        case AbstractSet():
            return digest(thing)
        case Mapping():
            return {str(key): describe(value) for key, value in thing.items()}
    if array_api_compat.is_array_api_obj(thing):
        return digest(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        compared = [item for item in fields(thing) if item.compare and not _unspoken(item, thing)]
        values = {item.name: describe(getattr(thing, item.name)) for item in compared}
        # A field of a user's own may be called like these two.
        own = {f"{name}_" if name in ("name", "version") else name: values[name] for name in values}
        return {"name": _class_name(thing), **version(type(thing)), **own}
    if isinstance(thing, Sequence):
        if thing and all(map(callable, thing)):
            return f"{len(thing)} functions"
        return [describe(item) for item in thing]
    if callable(thing):
        return _function_name(thing)
    # What says nothing of itself but where it lies in memory is known by its class alone.
    said = {} if type(thing).__repr__ is object.__repr__ else {"value": repr(thing)}
    return {"name": _class_name(thing), **version(type(thing)), **said}


def _unspoken(item: Field[Any], thing: object) -> bool:
    """Whether a field came after the first release and is as everything was before it."""
    return bool(item.metadata.get("later")) and getattr(thing, item.name) == item.default


def version(kind: type) -> dict[str, int]:
    """The version of a class's arithmetic, as an entry of a description; empty for the first.

    A class that begins to compute something else says so by ``version: ClassVar[int] = 2``, and
    what was computed before is no longer taken for its own.
    """
    number = getattr(kind, "version", 1)
    return {} if number == 1 or not isinstance(number, int) else {"version": number}


def digest(*contents: object) -> str:
    """A short fingerprint of arrays, tensors and sets, the same on every machine."""
    summary = hashlib.blake2b(digest_size=8)
    for content in contents:
        if array_api_compat.is_array_api_obj(content):
            array = to_numpy(content)
            summary.update(f"{array.dtype.str}{array.shape}".encode())
            summary.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        elif isinstance(content, AbstractSet):
            summary.update(repr(sorted(content)).encode())
        else:
            summary.update(repr(content).encode())
    return summary.hexdigest()


def differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> list[str]:
    """Where two descriptions differ, as "field: theirs vs ours"; the number of rounds may."""
    return [f"{name}: {old} vs {new}" for name, (old, new) in changes(theirs, ours).items()]


def changes(theirs: Mapping[str, object], ours: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """The values, theirs and ours, of every field in which two descriptions differ.

    Fields within fields are named with a dot. A field that is not there is as good as None. The
    number of rounds may differ, and a run of the first version may go on with settings that it did
    not have.
    """
    old, new = flat(theirs), flat(ours)
    return {
        name: (_printed(old, name), _printed(new, name))
        for name in dict.fromkeys([*old, *new])
        if name not in _MAY_CHANGE and _differ(old.get(name), new.get(name))
    }


def flat(description: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The fields of a description, and those within them, which are named with a dot."""
    found: dict[str, object] = {}
    for name, value in description.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def _printed(description: Mapping[str, object], name: str) -> str:
    if name in description:
        return repr(description[name])
    return "1" if name.rpartition(".")[2] == "version" else NOT_SET  # see `version`


def _differ(one: object, other: object) -> bool:
    # 1 is 1.0 to a rule, but 1 and True may mean two things.
    return one != other or isinstance(one, bool) != isinstance(other, bool)


def _class_name(thing: object) -> str:
    return _NAMES.get(type(thing).__name__) or name_of(type(thing))


def _function_name(function: Callable[..., object]) -> str:
    if isinstance(function, functools.partial):
        return f"partial {_function_name(function.func)}"
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{module}.{name}"

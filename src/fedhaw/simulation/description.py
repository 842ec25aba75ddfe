"""What a run is, as plain JSON: written into its history and compared when it is resumed."""

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from fedhaw.rules.registry import name_of

_NAMES = {
    "LocalUpdate": "local",
    "LetterUplink": "letter",
    "BurstyUplink": "bursty",
    "RecordedUplink": "recorded",
}
"""How classes other than rules are called in a history, where lower case is not enough."""

_MAY_CHANGE = ("rounds",)


def describe(thing: object) -> Any:
    """`thing` in numbers, texts, lists and mappings; large contents as a digest.

    Frozen dataclasses (rules, updates, uplinks) give their class and what they compare by.
    Functions give their name: that they still do the same is the user's word.
    """
    match thing:
        case None | bool() | str():
            return thing
        case int() | np.integer():
            return int(thing)
        case float() | np.floating():
            return float(thing) if math.isfinite(thing) else str(thing)
        case np.ndarray() | torch.Tensor() | AbstractSet():
            return digest(thing)
        case Mapping():
            return {str(key): describe(value) for key, value in thing.items()}
    if is_dataclass(thing) and not isinstance(thing, type):
        compared = [item.name for item in fields(thing) if item.compare]
        values = {name: describe(getattr(thing, name)) for name in compared}
        return {"name": _class_name(thing), **values}
    if isinstance(thing, Sequence):
        if thing and all(map(callable, thing)):
            return f"{len(thing)} functions"
        return [describe(item) for item in thing]
    if callable(thing):
        return _function_name(thing)
    return {"name": _class_name(thing)}


def digest(*contents: object) -> str:
    """A short fingerprint of arrays, tensors and sets, the same on every machine."""
    summary = hashlib.blake2b(digest_size=8)
    for content in contents:
        if isinstance(content, torch.Tensor):
            content = content.detach().cpu().numpy()
        if isinstance(content, np.ndarray):
            summary.update(f"{content.dtype.str}{content.shape}".encode())
            summary.update(np.ascontiguousarray(content).view(np.uint8).data)
        elif isinstance(content, AbstractSet):
            summary.update(repr(sorted(content)).encode())
        else:
            summary.update(repr(content).encode())
    return summary.hexdigest()


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Where two descriptions differ, as "field: theirs vs ours"; the number of rounds may."""
    before, now = _flat(theirs), _flat(ours)
    return [
        f"{name}: {_value(before, name)} vs {_value(now, name)}"
        for name in dict.fromkeys([*before, *now])
        if name not in _MAY_CHANGE and _value(before, name) != _value(now, name)
    ]


def _flat(description: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in description.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _value(flat: Mapping[str, Any], name: str) -> str:
    return repr(flat[name]) if name in flat else "nothing"


def _class_name(thing: object) -> str:
    return _NAMES.get(type(thing).__name__) or name_of(type(thing))


def _function_name(function: Callable[..., Any]) -> str:
    if isinstance(function, functools.partial):
        return f"partial {_function_name(function.func)}"
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{module}.{name}"

"""Rule states on disk.

A state is a frozen dataclass of arrays, numbers, texts, client names and mappings from names to
numbers. It becomes a part of a checkpoint: arrays stay arrays, and the rest is JSON.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from fedhaw.checkpoints import CheckpointError, Part, read, write
from fedhaw.rules.base import Client, Rule, State
from fedhaw.rules.passes import to_numpy

RETIRED = {"FedHAWState": ("scaling",)}
"""Fields that states of earlier versions have and nobody asks for any more, by kind."""

S = TypeVar("S", bound=State)


def save_state(state: State, path: str | os.PathLike[str]) -> None:
    """A file that holds `state`, all of it or nothing.

    Raises:
        CheckpointError: the state cannot be stored.
        FileWriteError: the file cannot be written.
    """
    write(path, {"state": pack_state(state)})


def load_state(rule: Rule[S], path: str | os.PathLike[str]) -> S:
    """The state of `rule` in a file or a checkpoint; arrays come back as NumPy arrays.

    Raises:
        CheckpointError: the file is missing, damaged, not a state, of a newer fedhaw, or of another
            rule.
    """
    parts = read(path)
    if "state" not in parts:
        raise CheckpointError(f"{path} holds no rule's state; give a file of save_state.")
    try:
        return unpack_state(rule, parts["state"])
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def pack_state(state: State) -> Part:
    """`state` as a part of a checkpoint; nothing is copied where models live on the CPU.

    Raises:
        CheckpointError: it is not a dataclass, or a client's name is not one that JSON can hold.
    """
    if not is_dataclass(state) or isinstance(state, type):
        raise CheckpointError(
            f"The state of the rule, a {type(state).__name__}, is not a dataclass and cannot be "
            "stored; make it one, or run without files."
        )
    arrays, rest = {}, {}
    for item in fields(state):
        name, value = item.name, getattr(state, item.name)
        if isinstance(value, Mapping):
            rest[name] = {"names": _names(value)}
            arrays[name] = np.array(list(value.values()), dtype=np.float64)
        elif isinstance(value, tuple):
            rest[name] = {"clients": _names(value)}
        elif value is None or isinstance(value, (bool, int, float, str)):
            rest[name] = {"value": value}
        else:
            arrays[name] = to_numpy(value)
    return Part(arrays, {"kind": type(state).__name__, "fields": rest})


def unpack_state(rule: Rule[S], part: Part) -> S:
    """The state that `pack_state` took apart, its arrays in NumPy.

    Raises:
        CheckpointError: the part is not a state of `rule`.
    """
    kind = type(rule.init())
    try:
        if part.facts["kind"] != kind.__name__:
            raise CheckpointError(
                f"the state is a {part.facts['kind']}, but {type(rule).__name__} needs a "
                f"{kind.__name__}; load it with the rule that made it."
            )
        values: dict[str, Any] = dict(part.arrays)
        for name, content in part.facts["fields"].items():
            if name in RETIRED.get(kind.__name__, ()):
                continue
            if "names" in content:
                numbers = part.arrays[name].tolist()
                values[name] = dict(zip(map(_name, content["names"]), numbers, strict=True))
            elif "clients" in content:
                values[name] = tuple(map(_name, content["clients"]))
            else:
                values[name] = content["value"]
        return kind(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"the description of the state is damaged ({error}); use an earlier file."
        ) from error


def _names(clients: Mapping[Client, float] | tuple[Client, ...]) -> list[str | int]:
    names: list[str | int] = []
    for client in clients:
        if isinstance(client, bool) or not isinstance(client, (str, int, np.integer)):
            raise CheckpointError(
                f"Client {client!r} cannot be saved: name clients by texts or whole numbers."
            )
        names.append(client if isinstance(client, str) else int(client))
    return names


def _name(stored: object) -> str | int:
    if isinstance(stored, (str, int)):
        return stored
    raise CheckpointError(f"the client name {stored!r} is neither a text nor a whole number.")

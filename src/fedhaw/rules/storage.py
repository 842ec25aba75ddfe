"""Rule states on disk.

A state is a frozen dataclass of arrays, numbers, texts, client names, mappings from names to
numbers or to vectors, and states of other rules. It becomes a part of a checkpoint: arrays stay
arrays, and the rest is JSON.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedhaw.checkpoints import CheckpointError, Part, read, write
from fedhaw.errors import shown
from fedhaw.rules.base import Client, Rule, State
from fedhaw.rules.mapped_rows import kept_row
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

    The arrays of a state within a state, and the vectors of a mapping, have their field's name and
    a dot before their own.

    Raises:
        CheckpointError: it is not a dataclass, a field is none of what a state may hold, or a
            client's name is not one that JSON can hold.
    """
    if not is_dataclass(state) or isinstance(state, type):
        raise CheckpointError(
            f"The state of the rule, a {type(state).__name__}, is not a dataclass and cannot be "
            "stored; make it one, or run without files."
        )
    arrays: dict[str, NDArray[np.generic]] = {}
    rest: dict[str, Any] = {}
    for item in fields(state):
        name, value = item.name, getattr(state, item.name)
        if isinstance(value, Mapping) and any(np.ndim(one) for one in value.values()):
            rest[name] = {"vectors": _names(value)}
            vectors = enumerate(value.values())
            arrays |= {f"{name}.{i}": _numbers(state, name, one) for i, one in vectors}
        elif isinstance(value, Mapping):
            rest[name] = {"names": _names(value)}
            arrays[name] = _numbers(state, name, list(value.values())).astype(np.float64)
        elif isinstance(value, tuple):
            rest[name] = {"clients": _names(value)}
        elif value is None or isinstance(value, (bool, int, float, str)):
            rest[name] = {"value": value}
        elif is_dataclass(value):
            within = pack_state(getattr(state, name))
            rest[name] = {"state": within.facts}
            arrays |= {f"{name}.{inner}": array for inner, array in within.arrays.items()}
        else:
            arrays[name] = _numbers(state, name, value)
    return Part(arrays, {"kind": type(state).__name__, "fields": rest})


def unpack_state(rule: Rule[S], part: Part) -> S:
    """The state that `pack_state` took apart, its arrays in NumPy.

    Raises:
        CheckpointError: the part is not a state of `rule`.
    """
    try:
        return _unpack(rule.init(), type(rule).__name__, part)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"the description of the state is damaged ({error}); use an earlier file."
        ) from error


def _unpack(start: S, rule: str, part: Part) -> S:
    """A state of the kind of `start`."""
    kind = type(start)
    if part.facts["kind"] != kind.__name__:
        raise CheckpointError(
            f"the state is a {part.facts['kind']}, but {rule} needs a {kind.__name__}; load it "
            "with the rule that made it."
        )
    values: dict[str, Any] = {name: a for name, a in part.arrays.items() if "." not in name}
    for name, content in part.facts["fields"].items():
        if name in RETIRED.get(kind.__name__, ()):
            continue
        own = f"{name}."
        within = {n.removeprefix(own): a for n, a in part.arrays.items() if n.startswith(own)}
        if "vectors" in content:
            clients = map(_name, content["vectors"])
            values[name] = {client: kept_row(within[str(i)]) for i, client in enumerate(clients)}
        elif "names" in content:
            numbers = part.arrays[name].tolist()
            values[name] = dict(zip(map(_name, content["names"]), numbers, strict=True))
        elif "clients" in content:
            values[name] = tuple(map(_name, content["clients"]))
        elif "state" in content:
            values[name] = _unpack(getattr(start, name), rule, Part(within, content["state"]))
        else:
            values[name] = content["value"]
    if not values.keys() <= vars(start).keys():
        raise CheckpointError(
            f"the state is of another version of {rule}, whose arithmetic was different; begin "
            "anew, or go on with the fedhaw that made it."
        )
    return kind(**values)


def _numbers(state: State, name: str, value: object) -> NDArray[np.generic]:
    try:
        array = to_numpy(value)
    except (TypeError, ValueError):  # lists of unequal lengths
        array = np.array(None)
    if array.dtype.kind not in "biufV":  # V: NumPy's word for bfloat16
        raise CheckpointError(
            f"The field {name} of {type(state).__name__} is {shown(value)}, which cannot be "
            "stored; keep arrays, numbers, texts, names of clients, or numbers by name in it, or "
            "run without files."
        )
    return array


def _names(clients: Mapping[Client, object] | tuple[Client, ...]) -> list[str | int]:
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

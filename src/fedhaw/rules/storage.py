"""Rule states on disk: one safetensors file each.

A state is a frozen dataclass of arrays, numbers, texts, client names and mappings from names to
numbers. Arrays go into the file as tensors; the rest goes into one JSON document in the file's
metadata, so nothing is ever unpickled and any safetensors reader can look inside.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedhaw.errors import FedhawError
from fedhaw.files import write_bytes
from fedhaw.rules.base import Client, Rule, State
from fedhaw.rules.reductions import to_numpy

FORMAT = "fedhaw-state"
VERSION = 1

S = TypeVar("S", bound=State)
Arrays = dict[str, NDArray[Any]]


class StateFileError(FedhawError, ValueError):
    """A state cannot be written, or what is in the file is not a state of this rule."""


def save_state(state: State, path: str | os.PathLike[str]) -> None:
    """Write `state` to `path`, all of it or nothing."""
    arrays, description = pack_state(state)
    metadata = {"format": FORMAT, "version": str(VERSION), "state": description}
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, save(whole, metadata=metadata))


def load_state(rule: Rule[S], path: str | os.PathLike[str]) -> S:
    """Read the state of `rule` from `path`; arrays come back as NumPy arrays.

    Raises:
        StateFileError: the file is missing, damaged, not a state, of a newer fedhaw, or of another
            rule.
    """
    file = Path(path)
    try:
        with safe_open(file, framework="numpy") as content:
            metadata = content.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise StateFileError(f"{file} is a safetensors file but not a fedhaw state.")
            if not metadata.get("version", "").isdigit() or int(metadata["version"]) > VERSION:
                raise StateFileError(
                    f"{file} has state format {metadata.get('version')!r}, this fedhaw reads up to "
                    f"{VERSION}; upgrade fedhaw to read it."
                )
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise StateFileError(
            f"{file} cannot be read as a fedhaw state ({error}); it may be truncated or foreign."
        ) from error
    try:
        return unpack_state(rule, arrays, metadata.get("state", ""))
    except StateFileError as error:
        raise StateFileError(f"{file}: {error}") from error


def pack_state(state: State) -> tuple[Arrays, str]:
    """`state` as named NumPy arrays and a JSON text, for whoever writes files of their own."""
    arrays: Arrays = {}
    rest: dict[str, Any] = {}
    for item in fields(state):  # type: ignore[arg-type]
        value = getattr(state, item.name)
        if isinstance(value, Mapping):
            rest[item.name] = {"names": _names(value)}
            arrays[item.name] = np.array(list(value.values()), dtype=np.float64)
        elif isinstance(value, tuple):
            rest[item.name] = {"clients": _names(value)}
        elif value is None or isinstance(value, (bool, int, float, str)):
            rest[item.name] = {"value": value}
        else:
            arrays[item.name] = to_numpy(value)
    return arrays, json.dumps({"kind": type(state).__name__, "fields": rest})


def unpack_state(rule: Rule[S], arrays: Arrays, description: str) -> S:
    """The state that `pack_state` took apart.

    Raises:
        StateFileError: the parts are not those of a state of `rule`.
    """
    kind = type(rule.init())
    try:
        document = json.loads(description)
        if document["kind"] != kind.__name__:
            raise StateFileError(
                f"the state is a {document['kind']}, but {type(rule).__name__} needs a "
                f"{kind.__name__}; load it with the rule that made it."
            )
        values: dict[str, Any] = dict(arrays)
        for name, content in document["fields"].items():
            if "names" in content:
                numbers = arrays[name].tolist()
                values[name] = dict(zip(map(_name, content["names"]), numbers, strict=True))
            elif "clients" in content:
                values[name] = tuple(map(_name, content["clients"]))
            else:
                values[name] = content["value"]
        return kind(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StateFileError):
            raise
        raise StateFileError(
            f"the description of the state is damaged ({error}); use an earlier file."
        ) from error


def _names(clients: Mapping[Client, float] | tuple[Client, ...]) -> list[str | int]:
    names: list[str | int] = []
    for client in clients:
        if isinstance(client, bool) or not isinstance(client, (str, int, np.integer)):
            raise StateFileError(
                f"Client {client!r} cannot be saved: name clients by texts or whole numbers."
            )
        names.append(client if isinstance(client, str) else int(client))
    return names


def _name(stored: object) -> str | int:
    if isinstance(stored, (str, int)):
        return stored
    raise StateFileError(f"the client name {stored!r} is neither a text nor a whole number.")

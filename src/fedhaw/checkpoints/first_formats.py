"""The three formats of fedhaw's first version, told as parts.

Simulator, Flower and saved states had a file format each. Their arrays have the names that they
have today; only the JSON was laid out in other ways.
"""

import ast
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.checkpoints.checksum import MISMATCH, checksum

Facts: TypeAlias = dict[str, Mapping[str, Any]]


def read(
    document: Mapping[str, Any], arrays: dict[str, NDArray[np.generic]]
) -> tuple[Facts, dict[str, NDArray[np.generic]]]:
    """Each part's facts, and all arrays under the names that they have today.

    Args:
        document: the simulator's JSON document, or the metadata of the others.
        arrays: by the names that they have in the file.

    Raises:
        ValueError: the file is damaged, or of another program.
    """
    rest, found = dict(document), None
    stated = rest.pop("checksum", None)
    match rest.get("format"):
        case "fedhaw-checkpoint":
            found = checksum(rest, arrays)
            run = {name: rest[name] for name in ("round", "config", "tensors")}
            state = json.loads(rest["state"])
            guard = {"recent": rest.get("recent_lengths", [])}
            facts: Facts = {"run": run, "model": {}, "state": state, "last": {}, "guard": guard}
        case "fedhaw-flower-checkpoint":
            found = checksum(rest, arrays, shapes=False)
            of = {name: json.loads(rest[name]) for name in rest.keys() - {"format", "rule"}}
            facts = {
                "run": {"round": of["round"], "rule": _rule(rest["rule"])},
                "model": {"arrays": of["arrays"]},
                "rest": {},
                "state": of["state"],
                "guard": {"recent": of.get("recent_lengths", [])},
                "roster": {name: of[name] for name in ("examples", "nodes", "cohort")},
            }
        case "fedhaw-state":  # without a checksum
            arrays = {f"state.{name}": array for name, array in arrays.items()}
            facts = {"state": json.loads(rest["state"])}
        case _:
            raise ValueError("it is not a fedhaw state or checkpoint")
    if stated != found:
        raise ValueError(MISMATCH)
    return facts, arrays


def _rule(text: str) -> Mapping[str, Any]:
    """The rule that Flower's checkpoint names, as Python prints a dictionary of plain values."""
    with suppress(ValueError, SyntaxError):
        rule = ast.literal_eval(text)
        if isinstance(rule, dict):
            return rule
    return {"name": text}

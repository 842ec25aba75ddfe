"""A record as a line of JSON, and back.

The last key of a line is a checksum of the bytes before it, so that a digit that flipped is
noticed. A line of format 1, the first version's, has none and another layout; it is read as if it
had been written today.

What is measured may be missing or nonsense in a file that somebody else wrote: it is then left
out. What a line is, and whose, must be right.
"""

import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TypeGuard, TypeVar

import numpy as np

from fedhaw.errors import shown
from fedhaw.history.errors import HistoryError
from fedhaw.history.records import (
    ClientFacts,
    EndRecord,
    Json,
    Learnt,
    Record,
    RoundRecord,
    RunRecord,
)

FORMAT = 2
"""The format that is written; it grows when the meaning of a key changes."""

KINDS = {RunRecord: "run", RoundRecord: "round", EndRecord: "end"}
DEEPEST = 50
"""A description nested more deeply than this is nobody's."""

LARGEST = 2**53
"""Whole numbers beyond this are not counts of anything."""

_CHECKSUM = b',"crc32":"'

T = TypeVar("T")


def encode(record: Record) -> bytes:
    """The line of a record, with its newline."""
    values: dict[str, object] = {"kind": KINDS[type(record)]}
    if isinstance(record, RunRecord):
        values["format"] = FORMAT
    values |= {item.name: getattr(record, item.name) for item in fields(record)}
    text = json.dumps(plain(values), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A name with half a surrogate pair cannot be written as it is.
    body = text[:-1].encode(errors="replace")
    return body + _CHECKSUM + b'%08x"}\n' % zlib.crc32(body)


def plain(value: object) -> Json:
    """A value in what JSON knows: no NaN or infinity, none of NumPy's numbers."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case ClientFacts():
            facts: dict[str, Json] = {"examples": value.examples, "labels": list(value.labels)}
            return {name: known for name, known in facts.items() if known not in (None, [])}
    return str(value)


def has_checksum(line: bytes) -> bool:
    """Whether a line ends with a checksum; all do from format 2 on."""
    return _CHECKSUM in line[-24:]


def decode(line: bytes, where: str, *, must_check: bool = False) -> Record | None:
    """The record of a line; None for a line of a kind that is not known here.

    Args:
        line: as it stands in the file.
        where: what a sentence calls it, such as "Line 3 of history.jsonl".
        must_check: whether a line without a checksum has lost it.

    Raises:
        HistoryError: the line is not one of a history, or was changed.
    """
    values = _object(line, where)
    body, checksum, rest = line.rstrip(b"\r\n").rpartition(_CHECKSUM)
    checked = checksum != b""
    intact = rest == b'%08x"}' % zlib.crc32(body) if checked else not must_check
    if not intact:
        raise HistoryError(
            f"{where} is damaged, its checksum does not match; restore the file, or remove it."
        )
    if not checked:
        values = _from_format_1(values)
    match values.get("kind"):
        case "run":
            return _run(values, checked, where)
        case "round":
            return _round(values, where)
        case "end":
            return EndRecord(_text(values.get("status")), _number(values.get("seconds")))
    return None


def _object(line: bytes, where: str) -> dict[str, Json]:
    try:
        text = line.decode()
        values = json.loads(text)
        if "\\ud" in text.lower():
            # Half a surrogate pair could be read, but never be written again.
            json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise HistoryError(
            f"{where} is not a JSON object in UTF-8; this is not a history, or it was damaged: "
            "restore the file, or remove it."
        )
    return values


def _from_format_1(values: dict[str, Json]) -> dict[str, Json]:
    """A line of format 1 in today's layout."""
    if values.get("kind") != "round":
        return values
    further = _mapping(values.get("accuracies"))
    return values | {
        "evaluation": {
            "accuracy": values.get("accuracy"),
            "loss": values.get("loss"),
            **{f"accuracy/{scale}": accuracy for scale, accuracy in further.items()},
        },
        "metrics": {"gamma": values.get("gamma")},
    }


def _run(values: Mapping[str, Json], checked: bool, where: str) -> RunRecord:
    number = values.get("format")
    if number not in range(1, FORMAT + 1) or isinstance(number, bool):
        raise HistoryError(
            f"{where} says history format {shown(number)}, and this fedhaw reads 1 to {FORMAT}; "
            "upgrade fedhaw, or read it with the fedhaw that wrote it."
        )
    if number == FORMAT and not checked:
        raise HistoryError(f"{where} has no checksum; restore the file, or remove it.")
    seed = values.get("seed") or 0
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise HistoryError(
            f"{where} has the seed {shown(seed)}, which is not a whole number; correct the file, "
            "or remove it."
        )
    rule, config = values.get("rule"), _mapping(values.get("config"))
    described: dict[str, Json] = {"name": rule} if isinstance(rule, str) else _mapping(rule)
    if is_too_deep([described, config]):
        raise HistoryError(f"{where} is nested too deeply for a history; remove the file.")
    described = {**described, "name": _text(described.get("name")) or "run"}
    return RunRecord(
        name=_text(values.get("name")) or _text(described["name"]),
        rule=described,
        seed=seed,
        config=config,
        clients=_each(values.get("clients"), _client),
        parameters=_count(values.get("parameters")),
        started=_text(values.get("started")),
        fedhaw=_text(values.get("fedhaw")) or "?",
    )


def _round(values: Mapping[str, Json], where: str) -> RoundRecord:
    index = _count(values.get("round"))
    if index is None:
        raise HistoryError(
            f"{where} has round {shown(values.get('round'))}, which is not a whole number from 0; "
            "restore the file, or remove it."
        )
    return RoundRecord(
        round=index,
        evaluation=_numbers(values.get("evaluation")),
        metrics=_each(values.get("metrics"), _learnt),
        weights=_numbers(values.get("weights")),
        lost=_each(values.get("lost"), _text),
        client_loss=_numbers(values.get("client_loss")),
        client_accuracy=_numbers(values.get("client_accuracy")),
        seconds=_numbers(values.get("seconds")),
        bytes=_each(values.get("bytes"), _count),
        note=_text(values.get("note")) or None,
    )


# One kind of value each; None where there is no such value.


def _numbers(value: Json) -> dict[str, float]:
    """Finite numbers by name; most lines hold nothing else, which is seen at a glance."""
    values = _mapping(value)
    if _are_floats(values) and math.isfinite(sum(values.values())):
        return values
    return _each(values, _number)


def _are_floats(values: dict[str, Json]) -> TypeGuard[dict[str, float]]:
    return set(map(type, values.values())) <= {float}


def _each(value: Json, read: Callable[[Json], T | None]) -> dict[str, T]:
    pairs = ((name, read(item)) for name, item in _mapping(value).items())
    return {name: item for name, item in pairs if item is not None}


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def _count(value: Json) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= LARGEST else None


def _learnt(value: Json) -> Learnt | None:
    if isinstance(value, list):
        return tuple(_number(item) for item in value)
    if isinstance(value, dict):
        return _numbers(value)
    return _number(value)


def _client(value: Json) -> ClientFacts:
    facts = _mapping(value)
    labels = facts.get("labels")
    counts = [_count(label) for label in labels] if isinstance(labels, list) else []
    known = tuple(count for count in counts if count is not None)
    return ClientFacts(_count(facts.get("examples")), known if len(known) == len(counts) else ())


def is_too_deep(value: Json, levels: int = DEEPEST) -> bool:
    """Whether lists and objects are nested more deeply than anybody's description is."""
    if not isinstance(value, dict | list):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_too_deep(item, levels - 1) for item in inside)

"""Histories read back from disk: one `history.jsonl` per run, one JSON object a line.

The first line describes the run, each further line one round, the last one says that the run
ended. A run that is still going, or was killed while writing, is read as far as it goes. A history
that is kept for good may be compressed: `history.jsonl.gz`.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError

HISTORY_NAME = "history.jsonl"
COMPRESSED_NAME = f"{HISTORY_NAME}.gz"
NEWEST_FORMAT = 1

Vector = NDArray[np.float64]
Record = Mapping[str, Any]


class HistoryError(FedhawError, ValueError):
    """A history is missing, or is not one."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run: one rule on one federation with one seed. T rounds are on disk.

    Attributes:
        path: the history's file.
        header: the first line.
        records: one mapping a round, by rising round number.
        finished: whether the run came to its end.
    """

    path: Path
    header: Record
    records: tuple[Record, ...]
    finished: bool

    @property
    def name(self) -> str:
        """What the run calls itself: its name, or else its rule's."""
        return str(self.header.get("name") or self.rule)

    @property
    def rule(self) -> str:
        """The rule's lower-case name."""
        rule = self.header.get("rule")
        return str(rule.get("name", "run") if isinstance(rule, Mapping) else rule or "run")

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.header.get("seed") or 0)

    @property
    def rounds_planned(self) -> int | None:
        """How many rounds the run's description asks for, where it says so."""
        config = self.header.get("config")
        planned = config.get("rounds") if isinstance(config, Mapping) else None
        return planned if isinstance(planned, int) else None

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The clients' names, in the order of the header; in histories they are text."""
        named = dict.fromkeys(map(str, _mapping(self.header.get("clients"))))
        for record in self.records:
            named.update(dict.fromkeys(map(str, _mapping(record.get("weights")))))
        return tuple(named)

    @cached_property
    def label_counts(self) -> NDArray[np.int64] | None:
        """(K, classes) samples of each class each client holds; None where not recorded."""
        described = _mapping(self.header.get("clients")).values()
        rows = [_mapping(client).get("labels") for client in described]
        if len({len(row) if isinstance(row, list) else -1 for row in rows}) != 1:
            return None
        counts = np.array(rows)
        return counts.astype(np.int64) if counts.size and counts.dtype.kind == "i" else None

    @cached_property
    def shares(self) -> Vector:
        """(K,) each client's share of all samples; NaN where not recorded."""
        described = _mapping(self.header.get("clients"))
        held = np.array(
            [_number(_mapping(described.get(client)).get("examples")) for client in self.clients]
        )
        return np.asarray(held / np.nansum(held)) if np.nansum(held) > 0 else held * np.nan

    @cached_property
    def weights(self) -> Vector:
        """(T, K) each client's weight in each round; NaN where it took no part."""
        return self.series(
            lambda record: [
                _number(_mapping(record.get("weights")).get(client)) for client in self.clients
            ]
        ).reshape(len(self.records), len(self.clients))

    @cached_property
    def layer_factors(self) -> Vector | None:
        """(T, L) the factor of each layer, for rules that scale layer by layer, else None."""
        rows = [record.get("gamma") for record in self.records]
        layers = {len(row) for row in rows if isinstance(row, list)}
        if len(layers) != 1 or 0 in layers:
            return None
        nothing = [None] * layers.pop()
        return np.array(
            [[_number(factor) for factor in row] if isinstance(row, list) else
             [_number(factor) for factor in nothing] for row in rows]
        )  # fmt: skip

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """Further input scales on which the accuracy was measured."""
        named: dict[str, None] = {}
        for record in self.records:
            named.update(dict.fromkeys(map(str, _mapping(record.get("accuracies")))))
        return tuple(named)

    def series(self, value: Callable[[Record], Any]) -> Vector:
        """(T, ...) one value, or one row of values, a round."""
        return np.array([value(record) for record in self.records], dtype=np.float64)

    def at(self, *keys: str) -> Vector:
        """(T,) the number at a path of keys in each record; NaN where there is none."""
        return self.series(lambda record: number_at(record, *keys))


def number_at(record: Record, *keys: str) -> float:
    """The number at a path of keys; NaN where there is none."""
    value: Any = record
    for key in keys:
        value = _mapping(value).get(key)
    return _number(value)


def find_histories(folders: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Every history under the given folders (or named directly), each once, in a stable order.

    Raises:
        HistoryError: a folder does not exist, or there is no history under any of them.
    """
    given = [Path(folder) for folder in folders]
    found: dict[Path, Path] = {}
    for folder in given:
        if not folder.exists():
            raise HistoryError(f"There is no folder {folder}; give a folder that holds runs.")
        inside = [folder]
        if not folder.is_file():
            inside = sorted([*folder.rglob(HISTORY_NAME), *folder.rglob(COMPRESSED_NAME)])
        for path in inside:
            found.setdefault(path.resolve(), path)
    if not found:
        where = ", ".join(map(str, given)) or "no folder at all"
        raise HistoryError(
            f"No {HISTORY_NAME} was found under {where}; give a folder that holds finished or "
            "running runs."
        )
    return tuple(found.values())


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read one history as far as it goes.

    A last line that was cut off is ignored. Where a round stands twice, because a run was resumed
    from an earlier round, the later record counts. Lines of a kind not known here are passed over.

    Raises:
        HistoryError: the file cannot be read, or is not a history this version understands.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise HistoryError(f"{path} is damaged ({error}); restore the file.") from error
    except OSError as error:
        raise HistoryError(f"Could not read {path}: {error.strerror}; check the file.") from error
    lines = content.splitlines()
    header: Record | None = None
    rounds: dict[int, Record] = {}
    finished = False
    for number, line in enumerate(lines, start=1):
        record = _parse(line)
        if record is None:
            if number == len(lines) or not line.strip():
                continue
            raise HistoryError(
                f"Line {number} of {path} is not a JSON object; restore the file or remove it."
            )
        kind = record.get("kind")
        if kind == "run" and header is None:
            header = record
        elif kind == "round":
            index = _round_number(record, path, number)
            rounds[index] = record
            finished = False
        elif kind == "end":
            finished = record.get("status") == "finished"
    if header is None:
        raise HistoryError(
            f'{path} has no line of kind "run" to say what it is; it is not a history, or was cut '
            "off at the very start: remove it."
        )
    if header.get("format") not in range(1, NEWEST_FORMAT + 1):
        raise HistoryError(
            f"{path} has history format {header.get('format')!r}, and this version reads up to "
            f"{NEWEST_FORMAT}; upgrade fedhaw."
        )
    return Run(path, header, tuple(rounds[index] for index in sorted(rounds)), finished)


def read_runs(folders: Sequence[str | os.PathLike[str]]) -> tuple[Run, ...]:
    """Read every history under the given folders.

    Raises:
        HistoryError: there is none, or one of them is not a history.
    """
    return tuple(read_run(path) for path in find_histories(folders))


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _round_number(record: Record, path: Path, line: int) -> int:
    index = record.get("round")
    if not isinstance(index, int) or index < 0:
        raise HistoryError(
            f"Line {line} of {path} has round {index!r}, which is not a whole number from 0; "
            "restore the file or remove it."
        )
    return index


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    """A finite number, or NaN: what is missing and what overflowed are both not drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return math.nan
    return float(value)

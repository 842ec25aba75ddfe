"""Small copies of histories, to be kept beside what was written about them.

A copy is a history like any other, compressed, with what a report draws, rounded to what can be
seen. What clients said of their own losses, and bytes, which the model's size tells, are left out.
"""

import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedhaw.files import write_bytes
from fedhaw.history import (
    COMPRESSED_NAME,
    EndRecord,
    History,
    Learnt,
    Record,
    RoundRecord,
    encode,
    find_histories,
)

DIGITS = 5
"""Significant ones: what is learnt may be a small number."""


def keep(folders: Sequence[str | os.PathLike[str]], out: Path) -> tuple[Path, ...]:
    """Small copies of all histories under `folders`, written to the same places under `out`.

    Of several folders, places begin where these part: monday/a and tuesday/a stay two.
    """
    given = [Path(folder) for folder in folders]
    roots = [folder if folder.is_dir() else folder.parent for folder in given]
    base = os.path.commonpath([root.resolve() for root in roots])
    copies = []
    for folder, root in zip(given, roots, strict=True):
        place = out / root.resolve().relative_to(base)
        for path in find_histories([folder]):
            copies.append(place / path.parent.relative_to(root) / COMPRESSED_NAME)
            write_bytes(copies[-1], _copy(History.read(path)))
    return tuple(copies)


def _copy(history: History) -> bytes:
    records: list[Record] = [history.run, *map(_small, history.records)]
    if history.finished:
        records.append(EndRecord())
    return gzip.compress(
        b"".join(map(encode, records)), mtime=0
    )  # the same history gives the same bytes


def _small(record: RoundRecord) -> RoundRecord:
    return replace(
        record,
        evaluation=_rounded(record.evaluation),
        metrics={name: _rounded_metric(value) for name, value in record.metrics.items()},
        weights=_rounded(record.weights),
        client_accuracy=_rounded(record.client_accuracy),
        seconds=_rounded(record.seconds),
        client_loss={},
        bytes={},
    )


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: _round(value) for name, value in values.items()}


def _rounded_metric(value: Learnt) -> Learnt:
    if isinstance(value, tuple):
        return tuple(None if number is None else _round(number) for number in value)
    return _rounded(value) if isinstance(value, Mapping) else _round(value)


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

"""Small copies of histories, to be kept beside what was written about them.

A copy is a history like any other, compressed, with what a report draws: accuracies, loss, gamma,
weights, who was lost and how long it took, rounded to what can be seen. What clients said of their
own losses, and bytes, which the model's size tells, are left out.
"""

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedhaw.files import write_bytes
from fedhaw.reports.runs import COMPRESSED_NAME, Record, find_histories, read_run

KEPT = ("kind", "round", "accuracy", "loss", "gamma", "weights", "lost", "seconds", "accuracies")
DIGITS = 4


def keep(folders: Sequence[str | os.PathLike[str]], out: Path) -> tuple[Path, ...]:
    """Write a small copy of every history under `folders` to the same place under `out`.

    Returns:
        The copies.

    Raises:
        HistoryError: there is no history, or one of them is not one.
        FileWriteError: `out` cannot be written.
    """
    copies = []
    for folder in map(Path, folders):
        for path in find_histories([folder]):
            below = path.parent.relative_to(folder) if folder.is_dir() else Path()
            copies.append(out / below / COMPRESSED_NAME)
            write_bytes(copies[-1], _copy(path))
    return tuple(copies)


def _copy(path: Path) -> bytes:
    run = read_run(path)
    lines: list[Record] = [run.header]
    lines += [{k: _rounded(record[k]) for k in KEPT if k in record} for record in run.records]
    if run.finished:
        lines.append({"kind": "end", "status": "finished"})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    return gzip.compress(text.encode(), mtime=0)  # the same history gives the same bytes


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value

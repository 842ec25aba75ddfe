"""Losses and delays that were measured somewhere, read from a file."""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from fedhaw.errors import shown
from fedhaw.uplink.base import InvalidUplink, Lost, Rounds

HEADING = ["round", "client", "delay"]
"""Of a trace; the last one may be missing."""


@dataclass(frozen=True)
class RecordedUplink:
    """Losses as they were recorded; the seed plays no part.

    Attributes:
        losses: (round, client) of every upload that does not arrive in its round, both counted from
            0. Whatever is not listed arrives, also after the last recorded round.
        origin: where they come from, for messages.
        late: (round, client, how many rounds later it comes) of those that come after all.
    """

    losses: frozenset[tuple[int, int]]
    origin: str = field(default="the recorded losses", compare=False)
    late: frozenset[tuple[int, int, int]] = field(default=frozenset(), metadata={"later": True})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """A trace in a file: CSV with the heading ``round,client`` and a line per lost upload.

        Under the heading ``round,client,delay`` a line also says how many rounds later the upload
        came, 0 for never. Empty lines and lines that begin with # are skipped.

        Raises:
            InvalidUplink: the file is missing or is not such a file; the line is named.
        """
        file = Path(path)
        delays: dict[tuple[int, int], int] = {}
        heading: list[str] = []
        try:
            with file.open(encoding="utf-8-sig", newline="") as lines:
                rows = csv.reader(line for line in lines if not line.startswith("#"))
                for row in rows:
                    cells = [cell.strip() for cell in row]
                    if not any(cells):
                        continue
                    if not heading:
                        heading = _heading(cells, file)
                        continue
                    place = f"row {rows.line_num} of {file}"
                    t, client, delay = _numbers(cells, heading, place)
                    delays[t, client] = delay
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidUplink(
                f"{file} cannot be read as a trace of lost uploads ({reason}); give a CSV file "
                "with the heading round,client."
            ) from error
        if not heading:
            raise InvalidUplink(f"{file} is empty; a trace begins with the heading round,client.")
        late = frozenset((*upload, delay) for upload, delay in delays.items() if delay)
        return cls(frozenset(delays), str(file), late)

    def check(self, clients: int) -> None:
        """A check of this trace: one that names clients beyond the last of `clients` is refused."""
        largest = max((client for _, client in self.losses), default=0)
        if largest >= clients:
            raise InvalidUplink(
                f"{self.origin} names client {largest}, but the clients are 0 to {clients - 1}; "
                "the trace belongs to a larger federation."
            )

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        return np.array(
            [(round_index, client) in self.losses for client in clients], dtype=np.bool_
        )

    def delays(self, seed: int, round_index: int, clients: Sequence[int]) -> Rounds:
        """The same as in `DelayingUplink`."""
        return np.array([self._delays.get((round_index, c), 0) for c in clients], dtype=np.int64)

    @cached_property
    def _delays(self) -> dict[tuple[int, int], int]:
        return {(t, client): delay for t, client, delay in self.late}


def _heading(cells: list[str], file: Path) -> list[str]:
    heading = [cell.lower() for cell in cells]
    if heading not in (HEADING, HEADING[:2]):
        raise InvalidUplink(
            f"{file} begins with {shown(','.join(cells))}; a trace of lost uploads begins with the "
            "heading round,client."
        )
    return heading


def _numbers(cells: list[str], heading: list[str], place: str) -> tuple[int, int, int]:
    """Round, client and delay, which is 0 where the trace has none."""
    # Eighteen digits fit 64 bits; isdecimal alone would take other scripts' digits, too.
    whole = all(c.isascii() and c.isdecimal() and len(c) < 19 for c in cells)
    if len(cells) != len(heading) or not whole:
        count = {2: "two", 3: "three"}[len(heading)]
        raise InvalidUplink(
            f"{place} is {shown(','.join(cells))}; it must be {count} whole numbers from 0, "
            f"{','.join(heading)}."
        )
    t, client, *delay = map(int, cells)
    return t, client, delay[0] if delay else 0

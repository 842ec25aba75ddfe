"""What a benchmark found, in one format: printed as it comes, and saved with what it ran on.

    with Record("sweep", save=options.save) as record:
        record.table("8 runs of 40 rounds", ("jobs", "median s"), rows)

A record is text: a few lines `name: value` (the command, the machine, how noisy it was meanwhile),
sentences, and tables in Markdown, each under a line `## title`. `read` takes the tables out of such
a file again; tests/test_figures.py holds README and docs against them.
"""

import os
import platform
import re
import resource
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np

from fedhaw.files import write_text
from fedhaw.rules.threads import available_cores

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("numpy", "torch", "flwr", "pfl")
FIRST = 36  # characters of a table's first column, so that rows can be printed as they come

Table: TypeAlias = Mapping[str, Mapping[str, str]]
"""By the text of its first cell a row, and in it by column the other cells."""


class Record:
    """A benchmark's output.

    Args:
        name: of the file in benchmarks/results, without its ending.
        save: whether to write that file once all went well; it is printed in any case.
    """

    def __init__(self, name: str, save: bool) -> None:
        self._place, self._save = RESULTS / f"{name}.txt", save
        self._lines: list[str] = []
        self._noise = Noise()

    def __enter__(self) -> Self:
        command = " ".join(["python", "benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]])
        self.say(f"command: {command}")
        self.say(f"machine: {machine()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.say(f"\nnoise: {self._noise.so_far()}")
            if self._save:
                write_text(self._place, "\n".join(self._lines) + "\n")

    def say(self, line: str) -> None:
        """A line of text."""
        print(line, flush=True)
        self._lines.append(line)

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> list[Sequence[object]]:
        """A table, row by row as they come; the rows once they are all there.

        Args:
            title: unlike all others of the record.
            columns: their names, the first of which is that of the rows.
            rows: cells; numbers as they are to be read.
        """
        self._noise.probe()
        widths = [FIRST, *(max(len(column), 8) for column in columns[1:])]

        def line(cells: Sequence[object]) -> str:
            first, *others = (
                f"{cell!s:{side}{width}}"
                for cell, side, width in zip(cells, "<" + ">" * len(cells), widths, strict=False)
            )
            return " | ".join(["| " + first, *others]) + " |"

        self.say(f"\n## {title}\n\n{line(columns)}")
        self.say(
            "|" + "|".join(["-" * (FIRST + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
        )
        seen = []
        for row in rows:
            seen.append(row)
            self.say(line(row))
        self._noise.probe()
        return seen


def read(file: Path) -> dict[str, Table]:
    """The tables of a record, by title."""
    parts = re.split(r"^## (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: parse(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def parse(text: str) -> Table:
    """The first table in a Markdown text."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    columns, _, *body = rows
    return {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in body}


def machine() -> str:
    """What this runs on."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if found := re.search(r"model name\s*: (.+)", cpuinfo.read_text() if cpuinfo.exists() else ""):
        name = found[1]
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = [f"{package} {number}" for package in PACKAGES if (number := _version(package))]
    return ", ".join(
        [
            f"{name}, {available_cores()} cores, {gigabytes:.0f} GB",
            f"{platform.system()}, Python {platform.python_version()}",
            *packages,
        ]
    )


class Noise:
    """How noisy the machine is: what other programs take of it, and how even its speed is."""

    def __init__(self) -> None:
        self._began, self._others = time.perf_counter(), _of_others()
        self._work = np.random.default_rng(0).standard_normal((512, 512))
        self._probes: list[float] = []
        self.probe()

    def probe(self) -> None:
        """The time of a piece of work that is always the same, ten times."""
        for _ in range(10):
            begin = time.perf_counter()
            np.sqrt(self._work * self._work).sum()
            self._probes.append(time.perf_counter() - begin)

    def so_far(self) -> str:
        """A sentence on the time since this began."""
        seconds = time.perf_counter() - self._began
        others = max(_of_others() - self._others, 0.0) / seconds
        median, most = np.quantile(self._probes, (0.5, 0.9)) / min(self._probes)
        return (
            f"other programs had {others:.2f} of {available_cores()} cores in {seconds:.0f} s; a "
            f"fixed piece of work on one core took {median:.2f} times its least, and one time in "
            f"ten more than {most:.2f} times ({len(self._probes)} times in all)"
        )


def _of_others() -> float:
    """Processor seconds that all other programs have had, and the host kept; 0 if nobody says."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    spent = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return spent - sum(usage.ru_utime + usage.ru_stime for usage in own)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

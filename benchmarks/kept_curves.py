"""The accuracies of many runs in one small file, so that a table can be made again without them.

A line is a run: its name, its rule with all that describes it, the number of its rounds, the rounds
in which it was evaluated with what came out, and what was said of whom the server trusts.
"""

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Self

import fedhaw
from fedhaw.description import describe
from fedhaw.files import write_bytes

DIGITS = 5


@dataclass(frozen=True)
class Curve:
    """What is kept of a run.

    Attributes:
        rule: as its history describes it.
        rounds: how many there were.
        accuracies: by round.
        notes: by round, those on trust.
    """

    rule: Any
    rounds: int
    accuracies: dict[int, float]
    notes: dict[int, str]

    @classmethod
    def of(cls, history: fedhaw.History) -> Self:
        """The curve of a run."""
        return cls(
            history.run.rule,
            len(history.records),
            {
                record.round: round(float(accuracy), DIGITS)
                for record, accuracy in zip(history.records, history.accuracy, strict=True)
                if not math.isnan(accuracy)
            },
            {
                record.round: record.note
                for record in history.records
                if record.note and "trust" in record.note
            },
        )

    def is_of(self, rule: object) -> bool:
        """Whether it is of this rule and its present arithmetic.

        Of a rule that a function makes of the federation nothing is known but its name.
        """
        described: Any = json.loads(json.dumps(describe(rule)))
        return not is_dataclass(rule) or self.rule == described


@dataclass(frozen=True, eq=False)
class KeptCurves:
    """The runs in a file.

    Attributes:
        path: of the file.
        curves: by the name of the run.
    """

    path: Path
    curves: Mapping[str, Curve]

    @classmethod
    def read(cls, path: Path) -> Self:
        """What is in a file; nothing where there is none."""
        curves = {}
        if path.exists():
            for line in gzip.decompress(path.read_bytes()).decode().splitlines():
                run = json.loads(line)
                for name in ("accuracies", "notes"):
                    run[name] = {int(t): value for t, value in run[name].items()}
                called = run.pop("run")
                curves[called] = Curve(**run)
        return cls(path, curves)

    def find(self, name: str, rule: object) -> Curve | None:
        """A run, unless it is of another rule than this."""
        curve = self.curves.get(name)
        return curve if curve and curve.is_of(rule) else None

    def write(self, curves: Mapping[str, Curve]) -> None:
        """These runs, and those in the file that are not among them."""
        lines = [
            json.dumps({"run": name} | asdict(curve), separators=(",", ":"))
            for name, curve in sorted({**self.curves, **curves}.items())
        ]
        write_bytes(self.path, gzip.compress("\n".join(lines).encode(), mtime=0))

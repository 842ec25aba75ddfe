"""The history of a deployment, in the format of the simulator's: docs/history-format.md.

One JSON line describes the run, then comes one a round; `fedhaw report` draws either kind. Rounds
are counted from 0 here, as in the simulator, and from 1 by Flower.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedhaw import __version__
from fedhaw.description import describe
from fedhaw.flower.roster import order
from fedhaw.history_file import FORMAT, HistoryError, HistoryFile, Record, parse


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round.

    Attributes:
        server_round: counted from 1.
        clients: who took part in the aggregation, lost clients included.
        lost: why each lost client was lost, by name.
        weights: each client's weight in the new model.
        gamma: the rule's scaling: a number, one a layer, or None.
        client_loss: the training loss of clients that report one.
        seconds: spent waiting for clients ("train"), aggregating, and evaluating.
        bytes: of arrays sent and received.
        note: what the rule, or the server, has to say about the round.
        evaluation: the server's own metrics of the new model.
    """

    server_round: int
    clients: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    gamma: float | list[float] | None = None
    client_loss: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    note: str | None = None
    evaluation: Mapping[str, Any] = field(default_factory=dict)

    def metrics(self, asked: int) -> dict[str, int | float]:
        """What Flower's result says of the round; its metrics can only be numbers."""
        numbers: dict[str, int | float] = {"clients-asked": asked, "clients-lost": len(self.lost)}
        numbers |= {f"lost/{client}": 1 for client in self.lost}
        return {**numbers, "gamma": self.gamma} if isinstance(self.gamma, float) else numbers

    def complaints(self) -> list[str]:
        """Lines for the log: who was lost, and why."""
        lines = [f"lost: client {client}: {reason}" for client, reason in self.lost.items()]
        return lines if self.note is None else [*lines, self.note]

    def record(self) -> dict[str, Any]:
        """The round as a line of the history."""
        return {
            "kind": "round",
            "round": self.server_round - 1,
            "accuracy": self.evaluation.get("accuracy"),
            "loss": self.evaluation.get("loss"),
            "gamma": self.gamma,
            "weights": dict(self.weights),
            "lost": dict(self.lost),
            "client_loss": dict(self.client_loss),
            "seconds": dict(self.seconds),
            "bytes": dict(self.bytes),
            "note": self.note,
        }


class RunHistory:
    """A history in the making.

    Args:
        path: of the file.
        first_line: what describes the run; its "clients" are filled in when they are known.
        rounds: how many rounds of a history that is there already to keep.

    Raises:
        FileWriteError: the file cannot be written, or another run is writing it.
    """

    def __init__(self, path: str | os.PathLike[str], first_line: Record, rounds: int) -> None:
        self._file = HistoryFile(Path(path))
        self._first_line = first_line
        kept = _length_of(Path(path), rounds)
        self._file.cut(kept)
        self._started = kept > 0

    def append(self, report: RoundReport, examples: Mapping[str, float]) -> None:
        """Add a round; before the first one, the description of the run."""
        if not self._started:
            known = {client: {"examples": int(count)} for client, count in examples.items()}
            clients = {**known, **self._first_line["clients"]}
            ordered = {client: clients[client] for client in sorted(clients, key=order)}
            self._file.append(_plain({**self._first_line, "clients": ordered}))
            self._started = True
        self._file.append(_plain(report.record()))

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        self._file.sync()

    def end(self, seconds: float) -> None:
        """Say that the run came to its end."""
        if self._started:
            self._file.append({"kind": "end", "status": "finished", "seconds": seconds})
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def first_line(
    rule: object,
    parameters: int,
    seed: int,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    clients: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The line that describes a run."""
    described = describe(rule)
    return {
        "kind": "run",
        "format": FORMAT,
        "fedhaw": __version__,
        "name": name or described["name"],
        "rule": described,
        "seed": seed,
        "config": dict(config or {"engine": "flower"}),
        "clients": {client: dict(facts) for client, facts in (clients or {}).items()},
        "parameters": parameters,
        "started": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def _length_of(path: Path, rounds: int) -> int:
    """How many bytes the first line and the first so many rounds take; 0 if they are not there."""
    try:
        content = parse(path, as_far_as_possible=True)
    except HistoryError:
        return 0
    return content.ends[rounds - 1] if 0 < rounds <= len(content.ends) else 0


def _plain(value: Any) -> Any:
    """JSON has no NaN, and NumPy's numbers are not Python's."""
    match value:
        case bool() | None | str():
            return value
        case np.generic() | np.ndarray():
            return _plain(value.tolist())
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value

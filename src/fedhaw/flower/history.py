"""The history of a deployment, in the format of the simulator's: docs/history-format.md.

One JSON line describes the run, then comes one a round; `fedhaw report` draws either kind. Rounds
are counted from 0 here, as in the simulator, and from 1 by Flower.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedhaw import __version__
from fedhaw.files import write_text
from fedhaw.flower.errors import FlowerError
from fedhaw.flower.roster import order

FORMAT = 1
_RULE_NAMES = {"FedHyperG": "fedhyper"}


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


class HistoryFile:
    """A history in the making.

    Args:
        path: of the file.
        first_line: what describes the run; its "clients" are filled in when they are known.
        rounds: how many rounds of a history that is there already to keep.
    """

    def __init__(
        self, path: str | os.PathLike[str], first_line: dict[str, Any], rounds: int
    ) -> None:
        self._path = Path(path)
        self._first_line = first_line
        self._started = False
        kept = _lines(self._path, rounds) if rounds else []
        if kept:
            write_text(self._path, "".join(line + "\n" for line in kept))
            self._started = True

    def append(self, report: RoundReport, examples: Mapping[str, float]) -> None:
        """Add a round; before the first one, the description of the run."""
        if not self._started:
            known = {client: {"examples": int(count)} for client, count in examples.items()}
            clients = {**known, **self._first_line["clients"]}
            ordered = {client: clients[client] for client in sorted(clients, key=order)}
            header = {**self._first_line, "clients": ordered}
            write_text(self._path, _line(header))
            self._started = True
        self._add(report.record())

    def end(self, seconds: float) -> None:
        """Say that the run came to its end."""
        if self._started:
            self._add({"kind": "end", "status": "finished", "seconds": seconds})

    def _add(self, record: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(record))
        except OSError as error:
            raise FlowerError(
                f"Could not write {self._path}: {error.strerror or error}; free some space or "
                "choose another folder."
            ) from error


def first_line(
    rule: object,
    parameters: int,
    seed: int,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    clients: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The line that describes a run."""
    described = describe_rule(rule)
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


def describe_rule(rule: object) -> dict[str, Any]:
    """A rule's name and those of its hyper-parameters that are plain values."""
    kind = type(rule).__name__
    name = _RULE_NAMES.get(kind, kind.lower())
    values = {item.name: getattr(rule, item.name) for item in fields(rule)}  # type: ignore[arg-type]
    plain = {
        key: value
        for key, value in values.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"name": name, **plain}


def _lines(path: Path, rounds: int) -> list[str]:
    """The first line and the first so many rounds, if they are all there; otherwise nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    kept: list[str] = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if record.get("kind") == "run" or (
            record.get("kind") == "round" and record.get("round", rounds) < rounds
        ):
            kept.append(line)
    return kept if len(kept) == rounds + 1 else []


def _line(record: Mapping[str, Any]) -> str:
    text = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text + "\n"


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

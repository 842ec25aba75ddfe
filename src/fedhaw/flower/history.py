"""The history of a deployment, which is the simulator's: see `fedhaw.history`.

Rounds are counted from 0 there, and from 1 by Flower.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedhaw import __version__
from fedhaw.description import describe
from fedhaw.flower.roster import order
from fedhaw.history import (
    ClientFacts,
    Content,
    EndRecord,
    HistoryError,
    HistoryFile,
    RoundRecord,
    RunRecord,
    parse,
)

_BEGINNING = b'{"kind":"run"'
"""How a history begins, even one that was cut short within its first line, unless it is empty."""


class RunHistory:
    """A history in the making.

    Args:
        path: of the file.
        run: what describes the run; its clients are filled in when they are known.
        rounds: how many rounds of a history that is there already to keep.

    Attributes:
        seconds_before: how long these took.

    Raises:
        FileWriteError: the file cannot be written, or another run is writing it.
        HistoryError: the file is no history, or does not hold so many rounds; it stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], run: RunRecord, rounds: int) -> None:
        self._file = HistoryFile(Path(path))
        self._run = run
        try:
            before, kept, self.seconds_before = rounds_kept(Path(path), rounds)
        except HistoryError:
            self._file.close()
            raise
        self._file.cut(kept)
        self._started = before is not None
        if before is not None:
            self._file.lengthen(before, run)

    def append(self, record: RoundRecord, examples: Mapping[str, float]) -> None:
        """One round more; before the first one, the description of the run."""
        if not self._started:
            known = {client: ClientFacts(int(count)) for client, count in examples.items()}
            clients = {**known, **self._run.clients}
            ordered = {client: clients[client] for client in sorted(clients, key=order)}
            self._file.append(replace(self._run, clients=ordered))
            self._started = True
        self._file.append(record)

    def sync(self) -> None:
        """A wait until everything is on the disk."""
        self._file.sync()

    def end(self, seconds: float) -> None:
        """The closing line: the run came to its end."""
        if self._started:
            self._file.append(EndRecord(seconds=seconds))
        self.close()

    def close(self) -> None:
        """The end of writing; the file is let go."""
        self._file.close()


def run_record(
    rule: object,
    parameters: int,
    seed: int,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    clients: Mapping[str, Mapping[str, Any]] | None = None,
) -> RunRecord:
    """What describes a run."""
    described = describe(rule)
    return RunRecord(
        name=name or described["name"],
        rule=described,
        seed=seed,
        config=dict(config or {"engine": "flower"}),
        clients={
            client: ClientFacts(facts.get("examples"), tuple(facts.get("labels", ())))
            for client, facts in (clients or {}).items()
        },
        parameters=parameters,
        fedhaw=__version__,
    )


def rounds_kept(path: Path, rounds: int) -> tuple[RunRecord | None, int, float]:
    """What the run is, and the bytes and seconds of its first rounds; nothing is changed.

    Raises:
        HistoryError: the file is no history, or does not hold so many rounds.
    """
    content = Content()
    if path.exists():
        content = parse(path, as_far_as_possible=True)
        with path.open("rb") as file:
            was_cut_short = _BEGINNING.startswith(file.read(len(_BEGINNING)))
        if content.run is None and not was_cut_short:
            raise HistoryError(f"{path} is no history; give history= another file, or remove it.")
    if len(content.ends) < rounds:
        raise HistoryError(
            f"{path} holds {len(content.ends)} rounds, but the checkpoint was made after {rounds}; "
            "put the history back, go on without history=, or start afresh with resume_from=0."
        )
    if not rounds:
        return None, 0, 0.0
    seconds = sum(sum(record.seconds.values()) for record in content.records[:rounds])
    return content.run, content.ends[rounds - 1], seconds

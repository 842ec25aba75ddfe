"""Histories as TensorBoard event files, while a run goes on or afterwards. Extra: `tracking`."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from fedhaw.errors import FedhawError
from fedhaw.reports.runs import Record, Run, number_at, read_runs


class TrackingError(FedhawError, RuntimeError):
    """TensorBoard is not installed, or its folder cannot be written."""


class TensorBoardLog:
    """Writes one run's rounds as scalars; give `on_round` every record as it is made.

    Tags: `accuracy`, `loss`, `gamma` (`gamma/<layer>` for one a layer), `lost_uploads`,
    `client_loss`, `weights/<client>`, `seconds/<part>`, `bytes/<way>`, `accuracy/<scale>` for
    further input scales. The step is the round, counted from 0 as in the history.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open an event file in `folder`, which is made if missing.

        Raises:
            TrackingError: TensorBoard is not installed, or the folder cannot be written.
        """
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise TrackingError(
                "TensorBoard event files need the package tensorboard, which is not installed; "
                "run: pip install 'fedhaw[tracking]'."
            ) from error
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._writer: Any = EventFileWriter(os.fspath(folder))
        except OSError as error:
            raise TrackingError(
                f"Could not write event files into {folder}: {error.strerror or error}; choose "
                "another folder."
            ) from error

    def on_round(self, record: Record, wall_time: float | None = None) -> None:
        """Write one round.

        Args:
            record: the round as it stands in the history.
            wall_time: when it was, in seconds since 1970; by default now.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        # Plain values, as torch's SummaryWriter leaves them: every reader knows these.
        values = [
            Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record).items()
        ]
        self._writer.add_event(
            Event(
                wall_time=time.time() if wall_time is None else wall_time,
                step=int(record["round"]),
                summary=Summary(value=values),
            )
        )
        # Whoever watches a run wants to see the round that has just ended.
        self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def scalars(record: Record) -> dict[str, float]:
    """The finite numbers of one round by tag."""
    found: dict[str, float] = {key: number_at(record, key) for key in ("accuracy", "loss", "gamma")}
    gamma = record.get("gamma")
    if isinstance(gamma, Sequence):
        found.update({f"gamma/{n}": number_at({"": g}, "") for n, g in enumerate(gamma)})
    for key, tag in (
        ("weights", "weights"),
        ("seconds", "seconds"),
        ("bytes", "bytes"),
        ("accuracies", "accuracy"),
    ):
        inside = record.get(key)
        if isinstance(inside, Mapping):
            found.update({f"{tag}/{name}": number_at(inside, name) for name in inside})
    lost, losses = record.get("lost"), record.get("client_loss")
    if isinstance(lost, Mapping):
        found["lost_uploads"] = float(len(lost))
    if isinstance(losses, Mapping) and losses:
        found["client_loss"] = math.fsum(number_at(losses, k) for k in losses) / len(losses)
    return {tag: value for tag, value in found.items() if math.isfinite(value)}


def write_tensorboard(
    folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> tuple[Path, ...]:
    """Turn every history under some folders into event files, a folder a run.

    The times are those of the run: its start and the seconds each round took.

    Returns:
        The folders written, `<out>/<name>/seed-<seed>`; a number is added where two runs share one.

    Raises:
        HistoryError: there are no histories, or one cannot be read.
        TrackingError: TensorBoard is not installed, or `out` cannot be written.
    """
    written: list[Path] = []
    for run in read_runs(folders):
        base = Path(out) / _folder_name(run.name) / f"seed-{run.seed}"
        folder, again = base, 2
        while folder in written:
            folder, again = base.with_name(f"{base.name}-{again}"), again + 1
        _convert(run, folder)
        written.append(folder)
    return tuple(written)


def _convert(run: Run, folder: Path) -> None:
    now = _started(run)
    with TensorBoardLog(folder) as log:
        for record in run.records:
            spent = record.get("seconds")
            if isinstance(spent, Mapping):
                taken = (number_at(spent, part) for part in spent)
                now += math.fsum(seconds for seconds in taken if math.isfinite(seconds))
            log.on_round(record, wall_time=now)


def _started(run: Run) -> float:
    try:
        return datetime.fromisoformat(str(run.header.get("started"))).timestamp()
    except ValueError:
        return run.path.stat().st_mtime


def _folder_name(name: str) -> str:
    """A name that stays inside its folder, whatever the run is called."""
    kept = "".join(c if c.isalnum() or c in "+-_. " else "_" for c in name).strip(". ")
    return kept or "run"

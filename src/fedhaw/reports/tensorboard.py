"""Histories as TensorBoard event files, while a run goes on or afterwards. Extra: `tracking`."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedhaw.errors import FedhawError, importing
from fedhaw.history import History, RoundRecord, numbers_of
from fedhaw.reports.names import file_name


class TrackingError(FedhawError, RuntimeError):
    """TensorBoard is not installed, or its folder cannot be written."""


class TensorBoardLog:
    """One run's rounds as scalars; give `on_round` every record as it is made.

    Tags: what was measured and what the rule learnt by name (`accuracy`, `loss`, ..., `NAME/0`,
    `NAME/1`, ... for a list), `lost_uploads`, `client_loss`, `weights/<client>`,
    `client_accuracy/<client>`, `seconds/<part>`, `bytes/<way>`. An evaluation
    metric of a user's that is called like another tag is under `evaluation/`, a rule's under
    `rule/`. The step is the round, counted from 0 as in the history.
    """

    def __init__(self, folder: str | os.PathLike[str], *, afresh: bool = False) -> None:
        """An open event file in `folder`, which is made if missing.

        Args:
            folder: where.
            afresh: remove the event files that are there.
        """
        with importing("TensorBoardLog", "tracking", TrackingError):
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for old in Path(folder).glob("events.out.tfevents.*") if afresh else ():
                old.unlink()
            self._writer: Any = EventFileWriter(os.fspath(folder))
        except OSError as error:
            raise TrackingError(
                f"Could not write event files into {folder}: {error.strerror or error}; choose "
                "another folder."
            ) from error

    def on_round(self, record: RoundRecord, wall_time: float | None = None) -> None:
        """One round more in the event file.

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
                step=record.round,
                summary=Summary(value=values),
            )
        )
        # Whoever watches a run wants to see the round that has just ended.
        self._writer.flush()

    def write(self, run: History, start: int = 0, stop: int | None = None) -> None:
        """The rounds `start` to `stop` of a run that has been, at the times they were."""
        now = _started(run)
        for record in run.records[:stop]:
            now += math.fsum(record.seconds.values())
            if record.round >= start:
                self.on_round(record, wall_time=now)

    def close(self) -> None:
        """The end of writing to the event file."""
        self._writer.close()

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def scalars(record: RoundRecord) -> dict[str, float]:
    """The numbers of one round by tag."""
    found: dict[str, float] = {"lost_uploads": len(record.lost)}
    if record.client_loss:
        found["client_loss"] = math.fsum(record.client_loss.values()) / len(record.client_loss)
    measured = record.evaluation.items()
    found |= {f"evaluation/{name}" if name in found else name: value for name, value in measured}
    for place in ("weights", "client_accuracy", "seconds", "bytes"):
        inside: Mapping[str, float] = getattr(record, place)
        found |= {f"{place}/{name}": value for name, value in inside.items()}
    for name, value in record.metrics.items():
        tag = f"rule/{name}" if name in found else name
        for which, number in numbers_of(value).items():
            if number is not None:
                found[f"{tag}/{which}" if which else tag] = number
    return found


def write_tensorboard(
    folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> tuple[Path, ...]:
    """Event files of every history under some folders, a folder a run.

    The times are those of the run: its start and the seconds each round took.

    Returns:
        The folders written, `<out>/<name>/seed-<seed>`; a number is added where two runs share one.

    Raises:
        HistoryError: there are no histories, or one cannot be read.
        TrackingError: TensorBoard is not installed, or `out` cannot be written.
    """
    written: list[Path] = []
    for run in History.read_all(folders):
        parent = Path(out) / file_name(run.name)
        taken = [folder.name for folder in written if folder.parent == parent]
        folder = parent / file_name(f"seed-{run.seed}", taken)
        with TensorBoardLog(folder) as log:
            log.write(run)
        written.append(folder)
    return tuple(written)


def _started(run: History) -> float:
    try:
        return datetime.fromisoformat(run.run.started).timestamp()
    except (ValueError, OverflowError):
        return time.time() if run.path is None else run.path.stat().st_mtime

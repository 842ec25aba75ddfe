"""Runs of a sweep side by side, in other processes, here or elsewhere.

If a process of this machine is killed, joblib ends the others, too: all runs that were under way go
on from their last checkpoints, in new ones. A cluster itself gives a dead worker's run to another.

Each run writes into its own folder. Where a worker does not see that folder, it computes in one of
its own, begins with what it was sent, and sends back what it wrote.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.typing import NDArray

from fedhaw import __version__
from fedhaw.errors import FedhawError
from fedhaw.experiments.backends import Backend, ClusterError, still_wanted
from fedhaw.experiments.following import Following
from fedhaw.experiments.job import Job, Watch
from fedhaw.experiments.recipe_folder import RECIPE_NAME, RecipeFolder
from fedhaw.experiments.running import load_data, run_recipe
from fedhaw.files import write_bytes
from fedhaw.history import FILE_NAME, RoundRecord
from fedhaw.models.threads import one_thread
from fedhaw.names import PLACES, blame
from fedhaw.rules.threads import limit_cores
from fedhaw.simulation.packing import Packed, unpacked

MOST_DEATHS = 2
"""How many times in a row processes may be killed before a run has finished, until we give up."""

logger = logging.getLogger(__name__)


class RunFailed(FedhawError, RuntimeError):
    """A run of a sweep that cannot be finished."""


@dataclass(frozen=True)
class Order:
    """One run, as another process receives it.

    Attributes:
        number: which of the runs.
        job: what to run, and where.
        seal: when this machine wrote the folder's recipe; whoever sees the same, sees the folder.
        files: what the folder holds of an interrupted run, by name.
        device: where to compute; None for where the federation is.
        federation: its message; its arrays travel apart.
        places: what the user calls the files of their own, for a sentence on an error in one.
        version: of the program that sends it.
    """

    number: int
    job: Job
    seal: int
    files: dict[str, bytes]
    device: str | None
    federation: bytes
    places: dict[str, str]
    version: str


@dataclass(frozen=True)
class Done:
    """A run that has finished.

    Attributes:
        number: which of the runs.
        files: what it wrote, by name, where that is not in its folder yet.
    """

    number: int
    files: dict[str, bytes]


def run_side_by_side(
    jobs: Sequence[Job],
    packed: Sequence[Packed],
    backend: Backend,
    devices: Sequence[str] = (),
    elsewhere: bool = False,
    watch: Watch = lambda event: None,
) -> None:
    """A run of every job, several at a time.

    Args:
        jobs: none of which has finished; their folders are claimed once the backend answers.
        packed: the federation of each.
        backend: who computes them.
        devices: handed to the runs in turn; none leaves each where its federation is.
        elsewhere: whether that may be on machines that do not see the runs' folders.
        watch: is told what happens.
    """
    waiting, deaths = dict(enumerate(jobs)), 0
    shared = [array for part in packed for array in part.arrays]
    with Following(watch) as following:
        while waiting:
            turns = cycle(devices or [None])

            def orders(turns: Iterator[str | None] = turns) -> Iterator[tuple[Any, ...]]:
                for number, job in list(waiting.items()):
                    following.started(job)
                    part = packed[number]
                    order = Order(
                        number,
                        replace(job, folder=job.folder.resolve()),
                        (job.folder / RECIPE_NAME).stat().st_mtime_ns,
                        _files(job.folder) if elsewhere else {},
                        next(turns),
                        part.message,
                        PLACES,
                        __version__,
                    )
                    yield (order, *part.arrays)

            try:
                with backend(shared) as compute:
                    for job in waiting.values():  # now that somebody is there to compute them
                        RecipeFolder(job.folder).claim(job.recipe, load_data(job.recipe))
                    with closing(compute(_work, orders())) as results:
                        for done in results:
                            job = waiting.pop(done.number)
                            _write(job, done.files)
                            following.finished(job)
                            deaths = 0
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths > MOST_DEATHS:
                    raise RunFailed(
                        "Processes that run the sweep were killed several times, perhaps for want "
                        "of memory; what is done is kept: run the same command again with --jobs 1."
                    ) from error
                logger.warning(
                    "A process that ran a part of the sweep was killed; the runs that were under "
                    "way go on from their last checkpoints."
                )


def _files(folder: Path) -> dict[str, bytes]:
    """What a run's folder holds, the history last: a folder without it holds no finished run."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    found.sort(key=lambda path: path.name == FILE_NAME)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def _write(job: Job, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        if name != RECIPE_NAME:
            write_bytes(job.folder / name, content)


_one_at_a_time = threading.Lock()


def _work(order: Order, *arrays: NDArray[np.generic]) -> Done:
    """A run that is finished when this returns."""
    if order.version != __version__:
        raise ClusterError(
            f"A worker of the cluster has fedhaw {__version__}, not {order.version}; install the "
            "same version everywhere."
        )
    with _one_at_a_time, one_thread():
        limit_cores(1)
        if _sees(order):
            _run(order, order.job.folder, arrays)
            return Done(order.number, {})
        with TemporaryDirectory(prefix="fedhaw-") as place:
            folder = Path(place)
            for name, content in order.files.items():
                write_bytes(folder / name, content)
            _run(order, folder, arrays)
            return Done(order.number, _files(folder))


def _sees(order: Order) -> bool:
    """Whether the folder of the run is the one that this process sees under its name."""
    try:
        return (order.job.folder / RECIPE_NAME).stat().st_mtime_ns == order.seal
    except OSError:
        return False


def _run(order: Order, folder: Path, arrays: Sequence[NDArray[np.generic]]) -> None:
    def look_up(record: RoundRecord) -> None:
        if not still_wanted():
            raise RunFailed("Nobody waits for this run any more.")

    job = order.job
    PLACES.update(order.places)
    try:
        federation = unpacked(order.federation, arrays)
        federation = federation.on(torch.device(order.device or federation.settings["device"]))
        run_recipe(job.recipe, folder, look_up, job.name, federation)
    except FedhawError:
        raise
    except (Exception, SystemExit) as error:
        sentence = blame(error)  # which only here knows the user's own code
        if sentence is None:
            raise
        raise RunFailed(sentence) from None

"""Runs of a sweep side by side, each in a process of its own with one core, through joblib.

A worker process ends with its parent, however that ends. If a worker is killed, joblib ends the
others, too: all runs that were under way go on from their last checkpoints, in new workers.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import cycle
from typing import Any

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.typing import NDArray

from fedhaw.errors import FedhawError
from fedhaw.experiments.following import Following
from fedhaw.experiments.job import Job, Watch
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.experiments.running import run_recipe
from fedhaw.names import blame
from fedhaw.rules.threads import limit_cores
from fedhaw.simulation.engines.worker_process import deaf_to_interrupts
from fedhaw.simulation.packing import Packed, unpacked

MOST_DEATHS = 2
"""How many times in a row workers may be killed before a run has finished, until we give up."""

logger = logging.getLogger(__name__)


class RunFailed(FedhawError, RuntimeError):
    """A run of a sweep that cannot be finished."""


def run_side_by_side(
    jobs: Sequence[Job],
    packed: Sequence[Packed],
    at_once: int,
    devices: Sequence[str] = (),
    watch: Watch = lambda event: None,
) -> None:
    """A run of every job, several at a time.

    Args:
        jobs: none of which has finished.
        packed: the federation of each.
        at_once: how many at a time.
        devices: handed to the runs in turn; none leaves each where its federation is.
        watch: is told what happens.

    Raises:
        FedhawError: a run failed; the others stop, too, and can go on later.
    """
    waiting, deaths = dict(enumerate(jobs)), 0
    with Following(watch) as following:
        while waiting:
            hand_out = cycle(devices or [None])

            def tasks(hand_out: Iterator[str | None] = hand_out) -> Iterator[Any]:
                for number, job in list(waiting.items()):
                    following.started(job)
                    part = packed[number]
                    yield joblib.delayed(_work)(
                        number, job, next(hand_out), part.message, *part.arrays
                    )

            try:
                with _worker_processes(at_once), closing(_results(tasks(), at_once)) as results:
                    for number in results:
                        following.finished(waiting.pop(number))
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


def _results(tasks: Iterator[Any], at_once: int) -> Any:
    """The numbers of runs as they finish."""
    # A task at a time for each worker: a run takes long, and its turn is shown as its start.
    parallel = joblib.Parallel(
        return_as="generator_unordered", pre_dispatch=at_once, batch_size=1, mmap_mode="c"
    )
    with deaf_to_interrupts():
        return parallel(tasks)


@contextmanager
def _worker_processes(at_once: int) -> Iterator[None]:
    with joblib.parallel_config(
        backend="loky",
        n_jobs=at_once,
        inner_max_num_threads=1,
        initializer=_start_worker,
        initargs=(os.getpid(),),
    ):
        yield


def _start_worker(parent: int) -> None:
    """What a worker process does first."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logging.basicConfig(format="fedhaw: %(message)s", level=logging.WARNING)
    limit_cores(1)


def _end_with(parent: int) -> None:
    """The end of this process once its parent is gone, even during a run."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _work(number: int, job: Job, device: str | None, message: bytes, *arrays: NDArray[Any]) -> int:
    """The number of a run that is finished when this returns."""
    try:
        federation = unpacked(message, arrays)
        federation = federation.on(torch.device(device or federation.settings["device"]))
        RecipeFolder(job.folder).claim(job.recipe, federation.dataset)
        run_recipe(job.recipe, job.folder, None, job.name, federation)
    except FedhawError:
        raise
    except Exception as error:
        sentence = blame(error)  # which only here knows the user's own code
        if sentence is None:
            raise
        raise RunFailed(sentence) from None
    return number

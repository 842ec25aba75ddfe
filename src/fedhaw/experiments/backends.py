"""Where the runs of a sweep are computed: processes of this machine, or the workers of a cluster.

All are backends of joblib, which hands out the runs. On a cluster one process computes one run at a
time, however many threads its worker has: torch's generator belongs to the whole process.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import joblib
import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError, importing, shown

PATIENCE = 30.0
"""Seconds that a cluster has to answer."""

Arrays: TypeAlias = Sequence[NDArray[np.generic]]
Backend: TypeAlias = Callable[[Arrays], AbstractContextManager[int]]
"""(arrays that the runs share) -> a block in which joblib uses it; says how many runs at a time."""


class ClusterError(FedhawError, RuntimeError):
    """A cluster that cannot be used."""


def processes(at_once: int) -> Backend:
    """Processes of this machine, one core each; they end with this one, however it ends."""

    @contextmanager
    def block(arrays: Arrays) -> Iterator[int]:
        with joblib.parallel_config(
            backend="loky",
            n_jobs=at_once,
            inner_max_num_threads=1,
            initializer=_start_process,
            initargs=(os.getpid(),),
        ):
            yield at_once

    return block


def cluster(address: str, at_once: int | None = None) -> Backend:
    """A cluster that is running: dask://HOST:PORT, ray://HOST:PORT, or ray for the one around here.

    Args:
        address: of its scheduler.
        at_once: how many runs at a time, default one for each of its workers.
    """
    kind, _, place = address.partition("://")
    if kind == "dask" and place:
        return lambda arrays: _dask(place, arrays, at_once)
    if kind == "ray":
        return lambda arrays: _ray(address if place else "auto", at_once)
    raise ClusterError(
        f"The cluster is {shown(address)}; give dask://HOST:PORT, ray://HOST:PORT, or ray."
    )


@contextmanager
def _dask(place: str, arrays: Arrays, at_once: int | None) -> Iterator[int]:
    with importing("A Dask cluster", "cluster", ClusterError):
        from distributed import Client
    try:
        client = Client(f"tcp://{place}", timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"No Dask scheduler answers at dask://{place}; start one with: dask scheduler."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise ClusterError(
                f"The Dask cluster at dask://{place} has no workers; start some with: "
                f"dask worker {place} --nthreads 1."
            ) from error
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        # Every worker has the arrays: whichever dies, another can go on.
        shared = list({id(array): array for array in arrays}.values())
        with joblib.parallel_config(backend="dask", client=client, scatter=shared):
            yield at_once or workers


@contextmanager
def _ray(address: str, at_once: int | None) -> Iterator[int]:
    with importing("A Ray cluster", "ray", ClusterError):
        import ray
        from ray.util.joblib import register_ray
    try:
        ray.init(address=address, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"No Ray cluster answers at {address} ({error}); start one with: ray start --head."
        ) from error
    register_ray()
    cores = at_once or int(ray.cluster_resources().get("CPU", 1))
    with joblib.parallel_config(backend="ray", n_jobs=cores):
        yield cores


def _start_process(parent: int) -> None:
    """What a process of this machine does first."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    logging.basicConfig(format="fedhaw: %(message)s", level=logging.WARNING)


def _end_with(parent: int) -> None:
    """The end of this process once its parent is gone, even during a run."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def still_wanted() -> bool:
    """Whether anybody waits for what this thread computes; a Dask worker knows, others assume it.

    The scheduler tells a worker when the client of a task is gone, but does not stop the task.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return True
    try:
        worker = distributed.get_worker()
        task = worker.state.tasks.get(distributed.worker.thread_state.key)
    except (ValueError, AttributeError):
        return True
    return task is not None and task.state != "cancelled"

"""Where the runs of a sweep are computed: processes of this machine, or the workers of a cluster.

Processes and Dask's workers get their runs from joblib; Ray's from Ray, since joblib learns nothing
of a run there before all have ended. On a cluster one process computes one run at a time, however
many threads its worker has: torch's generator belongs to the whole process.
"""

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker as python_resource_tracker
from typing import Any, TypeAlias

import joblib
import numpy as np
from joblib.externals.loky.backend import resource_tracker
from numpy.typing import NDArray

from fedhaw.errors import FedhawError, importing, shown
from fedhaw.simulation.engines.worker_process import deaf_to_interrupts

PATIENCE = 30.0
"""Seconds that a cluster has to answer."""

Arrays: TypeAlias = Sequence[NDArray[np.generic]]
Compute: TypeAlias = Callable[[Callable[..., Any], Iterable[Sequence[Any]]], Generator[Any]]
"""(a function, the arguments of each call) -> what the calls return, as they end."""
Backend: TypeAlias = Callable[[Arrays], AbstractContextManager[Compute]]
"""(arrays that the calls share) -> a block in which there is somebody to compute."""


class ClusterError(FedhawError, RuntimeError):
    """A cluster that cannot be used."""


def processes(at_once: int) -> Backend:
    """Processes of this machine, one core each; they end with this one, however it ends."""

    @contextmanager
    def block(arrays: Arrays) -> Iterator[Compute]:
        with joblib.parallel_config(
            backend="loky",
            n_jobs=at_once,
            inner_max_num_threads=1,
            initializer=_start_process,
            initargs=(os.getpid(),),
        ):
            yield _by_joblib(at_once)

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
        return lambda arrays: _ray(place and address, arrays, at_once)
    raise ClusterError(
        f"The cluster is {shown(address)}; give dask://HOST:PORT, ray://HOST:PORT, or ray."
    )


@contextmanager
def _dask(place: str, arrays: Arrays, at_once: int | None) -> Iterator[Compute]:
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
            yield _by_joblib(at_once or workers)


def _by_joblib(at_once: int) -> Compute:
    def compute(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> Generator[Any]:
        # A call at a time for each worker: a run takes long, and its turn is shown as its start.
        parallel = joblib.Parallel(
            return_as="generator_unordered", pre_dispatch=at_once, batch_size=1, mmap_mode="c"
        )
        # Starting a tracker of resources, loky's or Python's, makes the thread hear again: so they
        # come first, lest the first worker hears of Ctrl-C while it is importing.
        if hasattr(signal, "pthread_sigmask"):
            resource_tracker.ensure_running()
            python_resource_tracker.ensure_running()
        with deaf_to_interrupts():
            results: Generator[Any] = parallel(joblib.delayed(function)(*call) for call in calls)
        return results

    return compute


@contextmanager
def _ray(address: str, arrays: Arrays, at_once: int | None) -> Iterator[Compute]:
    with importing("A Ray cluster", "ray", ClusterError):
        import ray
    try:
        with warnings.catch_warnings(action="ignore"):  # the sentence below says it
            ray.init(address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"No Ray cluster answers {f'at {address}' if address else 'here'}; start one with: ray "
            "start --head."
        ) from error
    try:
        cores = at_once or int(ray.cluster_resources().get("CPU", 1))
        stored = {id(array): ray.put(array) for array in arrays}
        yield lambda function, calls: _by_ray(function, calls, stored, cores)
    finally:
        ray.shutdown()


def _by_ray(
    function: Callable[..., Any],
    calls: Iterable[Sequence[Any]],
    stored: dict[int, Any],
    at_once: int,
) -> Generator[Any]:
    import ray

    task = ray.remote(num_cpus=1)(function)
    under_way: list[Any] = []

    def next_result() -> Any:
        ended, under_way[:] = ray.wait(under_way)
        try:
            return ray.get(ended[0])
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"The Ray cluster gave a run up ({type(error).__name__}); what is done is kept: "
                "run the same command again."
            ) from error

    try:
        for call in calls:
            under_way.append(task.remote(*(stored.get(id(given), given) for given in call)))
            if len(under_way) == at_once:
                yield next_result()
        while under_way:
            yield next_result()
    finally:
        for unfinished in under_way:
            ray.cancel(unfinished, force=True)


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

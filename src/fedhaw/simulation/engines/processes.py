"""The engine of persistent worker processes: one torch thread each, everything large shared.

Samples, the global model and the clients' models lie in shared memory; what passes through a
worker's socket each time is a client's number one way and its loss the other. The longest client
goes first, so that the round does not end with one worker on a long client and the others idle.

A worker may die, of a signal or for want of memory: its client is lost for the round, a new worker
takes its place, and the round goes on.
"""

import math
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import ClassVar

import cloudpickle
import torch

from fedhaw.errors import FedhawError, named
from fedhaw.listing import listed
from fedhaw.models.threads import one_thread
from fedhaw.names import loaded_files
from fedhaw.rules.threads import available_cores
from fedhaw.simulation.engines import worker_process
from fedhaw.simulation.engines.base import ClientReport, TrainingRound
from fedhaw.simulation.engines.messages import TASK, Assignment
from fedhaw.simulation.engines.shared_beside import SharedBeside, shared_beside
from fedhaw.simulation.engines.shared_memory import Handle, SharedTensor
from fedhaw.simulation.engines.worker_process import WorkerDied, WorkerProcess
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.vector_rows import copy_vectors

FAILED_STARTS = 5
"""How many workers may die in a row before they are ready, until we stop trying."""


class WorkersFailed(FedhawError, RuntimeError):
    """Worker processes cannot be started, or what they need cannot be sent to them."""


@listed(__name__, "processes", "several at a time, to the same bits as sequential")
class ProcessesEngine:
    """An engine that trains the cohort on several cores.

    Args:
        federation: what to train, by how many workers; its samples are copied to shared memory
            once. After its deadline a client is given up and its worker replaced.
    """

    arithmetic: ClassVar[str] = "one by one"

    def __init__(self, federation: Federation) -> None:
        if not worker_process.SUPPORTED:
            raise WorkersFailed(
                "The engine processes hands open files to its workers, which this system does not "
                'do; choose engine "sequential" or "stacked".'
            )
        self._check = federation.holdings.check
        self._sizes = federation.sizes
        self._deadline = federation.settings["deadline"]
        workers = federation.settings["workers"]
        self._failed_starts = 0
        count = max(1, min(workers or available_cores(), len(self._sizes)))
        self._workers: list[WorkerProcess] = []
        self._tensors: list[SharedTensor] = []
        # Before there is anything to release: whatever fails on the way leaves nothing behind.
        self._finish = weakref.finalize(self, _release, self._workers, self._tensors)
        try:
            self._open(federation, count)
            for index in range(count):
                self._workers.append(self._new_worker(index))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _unstartable(error) from error
            raise

    def _open(self, federation: Federation, count: int) -> None:
        """A copy in shared memory of everything that workers need."""
        P, holdings = federation.layout.size, federation.holdings
        x, y = federation.training_samples()

        def shared(tensor: SharedTensor) -> SharedTensor:
            self._tensors.append(tensor)
            return tensor

        parts = {
            "x": shared(SharedTensor.of(x)),
            "y": shared(SharedTensor.of(y)),
            "rows": shared(SharedTensor.of(holdings.rows)),
            "offsets": shared(SharedTensor.of(torch.from_numpy(holdings.offsets))),
            "global_model": shared(SharedTensor((P,))),
            "client_models": shared(SharedTensor((count, P))),
            **{name: shared(part) for name, part in shared_beside(federation, count).items()},
        }
        tensors, update = {n: part.tensor for n, part in parts.items()}, federation.client_update
        self._beside = [
            SharedBeside.of(update, federation.layout, tensors, index) for index in range(count)
        ]
        self._global_model = parts["global_model"].tensor
        self._client_models = parts["client_models"].tensor
        handles = {name: part.handle for name, part in parts.items()}
        assignment = shared(_pickled(federation, handles))
        self._assignment = assignment.handle.descriptor
        self._inherited = [tensor.handle.descriptor for tensor in self._tensors]

    @property
    def pids(self) -> list[int]:
        """The process numbers of the present workers."""
        return [worker.pid for worker in self._workers]

    def train(self, given: TrainingRound) -> list[ClientReport]:
        """The same as in `Engine`."""
        self._check(given.cohort)
        try:
            # The cores belong to the workers: a second thread here, for copying, waits for one.
            with one_thread():
                self._global_model.copy_(given.global_model)
                if given.beside is not None:
                    copy_vectors(given.beside.down, self._beside[0].down)
                reports = dict(self._reports(given))
        except BaseException:
            # Whoever is still busy would answer into a later round.
            for worker in list(self._workers):
                if worker.busy_with is not None:
                    self._replace(worker)
            raise
        return [reports[position] for position in range(len(given.cohort))]

    def close(self) -> None:
        """The same as in `Engine`."""
        self._finish()

    def _reports(self, given: TrainingRound) -> Iterator[tuple[int, ClientReport]]:
        """Each client's position in the cohort and its report, as they come in."""
        cohort, beside = given.cohort, given.beside
        longest_first = sorted(range(len(cohort)), key=lambda i: -self._sizes[cohort[i]])
        waiting = deque(longest_first)
        unfinished = len(cohort)
        while unfinished:
            for worker in list(self._workers):
                if waiting and worker.idle:
                    position = waiting.popleft()
                    if beside is not None:
                        self._beside[worker.index].hand_over(beside.memory(cohort[position]))
                    try:
                        worker.give(position, TASK.pack(given.round_index, cohort[position]))
                    except WorkerDied:
                        # It died waiting: no fault of this client's, who goes to the next one.
                        waiting.appendleft(position)
                        self._replace(worker)
            for worker in self._with_news():
                position, report = self._news(worker, given)
                if report is not None:
                    unfinished -= 1
                    yield position, report

    def _with_news(self) -> list[WorkerProcess]:
        """A wait until some workers have something to say, have died, or are past the deadline."""
        by_connection = {worker.connection: worker for worker in self._workers}
        patience = None
        if self._deadline is not None:
            busy = [w.seconds_busy() for w in self._workers if w.busy_with is not None]
            patience = max(0.0, self._deadline - max(busy, default=0.0))
        heard = [by_connection[c] for c in wait(by_connection, patience) if type(c) is Connection]
        return heard or [worker for worker in self._workers if self._is_late(worker)]

    def _is_late(self, worker: WorkerProcess) -> bool:
        if self._deadline is None or worker.busy_with is None:
            return False
        return worker.seconds_busy() >= self._deadline

    def _news(self, worker: WorkerProcess, given: TrainingRound) -> tuple[int, ClientReport | None]:
        """The report that a worker's message, or its silence, amounts to, if any."""
        position = worker.busy_with
        seconds = worker.seconds_busy()
        try:
            if self._is_late(worker) and not worker.connection.poll():
                raise WorkerDied(f"later than {self._deadline:g} s")
            report = worker.hear()
        except WorkerDied as death:
            self._replace(worker)
            if position is None:
                return -1, None
            return position, ClientReport(given.cohort[position], math.nan, seconds, str(death))
        if report is None or position is None:
            self._failed_starts = 0
            return -1, None
        if report.failure is None:
            given.out[position].copy_(self._client_models[worker.index])
            if given.beside is not None:
                made = self._beside[worker.index]
                given.beside.keep(report.client, made.up, made.new_memory)
        return position, report

    def _new_worker(self, index: int) -> WorkerProcess:
        return WorkerProcess(index, self._assignment, self._inherited)

    def _replace(self, worker: WorkerProcess) -> None:
        worker.end()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise WorkersFailed(
                    f"{FAILED_STARTS} worker processes in a row died while starting; see what they "
                    'wrote to standard error, or use engine="sequential".'
                )
        try:
            self._workers[worker.index] = self._new_worker(worker.index)
        except OSError as error:
            raise _unstartable(error) from error


def _unstartable(error: OSError) -> WorkersFailed:
    return WorkersFailed(
        f"Worker processes cannot be started ({error.strerror or error}); close other programs, "
        'ask for fewer workers, or use engine="sequential".'
    )


def _pickled(federation: Federation, handles: Mapping[str, Handle]) -> SharedTensor:
    """The workers' assignment, pickled, in shared memory.

    cloudpickle also takes classes and functions of a script or a notebook, by value.
    """
    assignment = Assignment(
        module=federation.module,
        layout=federation.layout,
        client_update=federation.client_update,
        seed=federation.settings["seed"],
        device=str(federation.device),
        handles=handles,
    )
    for own in loaded_files():  # a worker could not import them
        cloudpickle.register_pickle_by_value(own)
    try:
        data = cloudpickle.dumps(assignment)
    except Exception as error:
        raise WorkersFailed(
            "The model or the client update cannot be sent to worker processes "
            f'({named(error)}); use engine="sequential".'
        ) from error
    return SharedTensor.of(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def _release(workers: list[WorkerProcess], tensors: list[SharedTensor]) -> None:
    for worker in workers:
        worker.end()
    for tensor in tensors:
        tensor.close()

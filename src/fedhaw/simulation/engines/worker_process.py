"""The parent's side of one worker process."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from fedhaw.simulation.engines.base import ClientReport
from fedhaw.simulation.engines.messages import READY, from_bytes

SUPPORTED = os.name == "posix"
"""Whether a child process can be handed open descriptors, which Windows does not do."""

ENVIRONMENT = {
    # Workers share the cores among them; a thread pool each would only get in the way.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Every step of a convolution frees megabytes and asks for them again; given back to the kernel
    # in between, they come zeroed, which took a tenth of a narrow ResNet's time.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}
"""What a worker's environment has besides its parent's."""


class WorkerDied(Exception):
    """The process at the other end is gone; `str` says how it ended."""


@contextmanager
def _closed_on_failure(end: socket.socket) -> Iterator[None]:
    """A block that closes a socket if what the socket is for fails."""
    try:
        yield
    except BaseException:
        end.close()
        raise


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """A block whose new processes never hear Ctrl-C, not even while they import torch.

    Threads that it starts do not hear it either, nor do the processes that they start later.

    It reaches every process of a terminal; what to do about it is for the parent alone to say. A
    process inherits the signals that are blocked where it is started, and keeps them blocked.
    Windows has no such thing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """A worker: started at once, ready a little later, busy with at most one client at a time.

    Args:
        index: which of the workers this one is.
        assignment: descriptor of the file with the pickled assignment.
        inherited: every descriptor it needs, that one included.

    Attributes:
        ready: it has started and can be given clients.
        busy_with: position in the cohort of the client it is training; None when it waits.
    """

    def __init__(self, index: int, assignment: int, inherited: Sequence[int]) -> None:
        self.index = index
        self.ready = False
        self.busy_with: int | None = None
        self._since = 0.0
        ours, theirs = socket.socketpair()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from fedhaw.simulation.engines.worker import main; "
            f"main({theirs.fileno()}, {assignment}, {index})"
        )
        with _closed_on_failure(ours), theirs, deaf_to_interrupts():
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *inherited),
                env={**os.environ, **ENVIRONMENT},
            )
        self.connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def idle(self) -> bool:
        """Whether it waits for a client."""
        return self.ready and self.busy_with is None

    def seconds_busy(self) -> float:
        """How long it has been busy with its present client."""
        return time.perf_counter() - self._since

    def give(self, position: int, task: bytes) -> None:
        """A new client, handed to it.

        Raises:
            WorkerDied: it cannot take one any more.
        """
        try:
            self.connection.send_bytes(task)
        except OSError as error:
            raise WorkerDied(self._how_it_ended()) from error
        self.busy_with, self._since = position, time.perf_counter()

    def hear(self) -> ClientReport | None:
        """What it has to say: a report, or None when all it said is that it is ready.

        Raises:
            WorkerDied: it has nothing to say any more.
        """
        try:
            said = self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerDied(self._how_it_ended()) from error
        if said == READY:
            self.ready = True
            return None
        self.busy_with = None
        return from_bytes(said)

    def end(self) -> None:
        """The end of the process by force; there is nothing in it to save."""
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def _how_it_ended(self) -> str:
        # A process whose socket is closed has ended or is about to.
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"worker killed ({how})"

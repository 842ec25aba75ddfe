"""A worker process: trains one client after the other with one torch thread.

It is started by `fedhaw.simulation.engines.processes` in a fresh interpreter, neither forked, which
torch's threads do not survive, nor by multiprocessing, which would run the user's script again.
"""

import mmap
import os
import pickle
import select
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from fedhaw.clients import Trainer
from fedhaw.models.threads import one_thread
from fedhaw.simulation.engines.base import TrainingRound
from fedhaw.simulation.engines.messages import READY, TASK, Assignment, to_bytes
from fedhaw.simulation.engines.sequential import train_one
from fedhaw.simulation.engines.shared_beside import SharedBeside
from fedhaw.simulation.holdings import Holdings


@one_thread()
def main(descriptor: int, assignment_descriptor: int, index: int) -> None:
    """A worker that serves the parent at the other end of a socket until it closes it, or dies.

    Args:
        descriptor: of the socket.
        assignment_descriptor: of a file that holds the pickled `Assignment`.
        index: which of the workers this one is, and so which place its clients' models go to.
    """
    threading.Thread(target=_die_with_parent, args=(descriptor,), daemon=True).start()
    parent = Connection(descriptor)
    # Written a moment ago by the parent, to memory that nobody else can open.
    assignment: Assignment = pickle.loads(_contents(assignment_descriptor))
    device = torch.device(assignment.device)
    tensors = {name: handle.open() for name, handle in assignment.handles.items()}
    _keep_to_a_core(index, len(tensors["client_models"]))
    holdings = Holdings(tensors["rows"].to(device), tensors["offsets"].numpy())
    train = Trainer(
        assignment.module,
        assignment.layout,
        assignment.client_update,
        tensors["x"].to(device),
        tensors["y"].to(device),
        assignment.seed,
        device,
    )
    global_model, row = tensors["global_model"], tensors["client_models"][index]
    beside = SharedBeside.of(assignment.client_update, assignment.layout, tensors, index)
    # A parent that is gone is no error: there is nobody left to tell.
    with suppress(EOFError, ConnectionError):
        parent.send_bytes(READY)
        while True:
            round_index, client = TASK.unpack(parent.recv_bytes())
            also = None if beside.is_empty else beside
            given = TrainingRound(round_index, global_model, [client], [row], also)
            parent.send_bytes(to_bytes(train_one(train, holdings, given, 0)))


def _keep_to_a_core(index: int, workers: int) -> None:
    """A core for this worker alone, where there are as many as workers.

    Workers are woken together by their parent, and a system often leaves two of them on its core
    for longer than a short client takes.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) == workers:
            os.sched_setaffinity(0, {cores[index]})


def _contents(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _die_with_parent(descriptor: int) -> None:
    """The end of this process when the parent's end of the socket closes, even during a client.

    The kernel closes it however the parent ends, so no worker outlives a parent killed outright.
    """
    hangup = select.poll()
    hangup.register(descriptor, 0)  # asks for no event, and so hears of hang-ups only
    hangup.poll()
    os._exit(0)

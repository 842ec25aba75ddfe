"""What training alone costs in PyTorch: a plain loop on every core, with no federation around it.

Each process has all samples, and in a round is told its share of the clients. It looks their
samples up and takes plain SGD steps by autograd; no models come or go, and nothing is averaged.
"""

import multiprocessing
from contextlib import suppress
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from simulation_peers.workload import Rounds, Workload, workload


def rounds(work: Workload, work_name: str, data: str) -> Rounds:
    spawned = multiprocessing.get_context("spawn")
    workers = []
    for _ in range(torch.get_num_threads()):
        ours, theirs = spawned.Pipe()
        arguments = (theirs, work_name, data)
        spawned.Process(target=_train_when_asked, args=arguments, daemon=True).start()
        workers.append(ours)
    draw = np.random.default_rng(0)
    while True:
        cohort = draw.choice(len(work.parts), work.cohort, replace=False)
        largest_first = sorted(cohort.tolist(), key=lambda client: -len(work.parts[client]))
        shares: list[list[int]] = [[] for _ in workers]
        for client in largest_first:
            min(shares, key=lambda share: sum(len(work.parts[k]) for k in share)).append(client)
        for worker, share in zip(workers, shares, strict=True):
            worker.send(share)
        for worker in workers:
            worker.recv()
        yield


def _train_when_asked(referee: Connection, work_name: str, data: str) -> None:
    torch.set_num_threads(1)
    work = workload(work_name, data)
    module = work.module()
    parameters: list[Tensor] = list(module.parameters())
    start = [parameter.detach().clone() for parameter in parameters]

    def train(rows: NDArray[np.int64]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(parameters, start)
        order = torch.from_numpy(rows)[torch.randperm(len(rows))]
        for chosen in torch.split(order, work.batch):
            loss = cross_entropy(module(work.x[chosen]), work.y[chosen])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-work.eta)

    with suppress(EOFError):  # the referee has seen enough
        while True:
            for client in referee.recv():
                train(work.parts[client])
            referee.send(None)

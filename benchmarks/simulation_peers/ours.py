"""fedhaw: an engine, the FedAvg rule and, where asked for, a client algorithm with a memory."""

import numpy as np
import torch
from torch import Tensor, nn

from fedhaw.data import from_arrays
from fedhaw.rules import FedAvg, Round
from fedhaw.settings import fill
from fedhaw.simulation import Federation
from fedhaw.simulation.aggregation import ServerStep
from fedhaw.simulation.engines import TrainingRound, create
from fedhaw.simulation.exchange import Exchange
from simulation_peers.workload import Rounds, Workload


class Opaque(nn.Module):
    """A perceptron that nobody recognises as one: an arbitrary module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def rounds(
    work: Workload,
    engine: str,
    opaque: bool = False,
    client_update: str = "sgd",
    precision: str = "float32",
) -> Rounds:
    module = Opaque(work.module()) if opaque else work.module()
    x, y = work.x.numpy(), work.y.numpy()
    given: dict[str, object] = {
        "data": from_arrays(x, y, x[:1000], y[:1000]),
        "model": module,
        "split": work.parts,
        "eta": work.eta,
        "batch": work.batch,
        "engine": engine,
        "client_update": client_update,
        "precision": precision,
    }
    federation = Federation.prepare(fill(given, objects=True))
    rule, trainer = FedAvg(), create(federation)
    model, state = federation.initial_model, rule.init()
    exchange = Exchange.begin(federation, None, None)
    if exchange is not None:
        _let_everybody_remember(exchange)
    buffers = [torch.empty(work.cohort, len(model)) for _ in range(2)]
    draw = np.random.default_rng(0)
    sizes = np.array([len(part) for part in work.parts])
    index = 0
    while True:
        cohort = np.sort(draw.choice(len(sizes), work.cohort, replace=False)).tolist()
        beside = None if exchange is None else exchange.round(cohort)
        matrix = buffers[index % 2]
        reports = trainer.train(TrainingRound(index, model, cohort, matrix.unbind(), beside))
        assert all(report.failure is None for report in reports)
        # Aggregation looks at every number of every model too; that belongs to the round.
        arrived = Round(model, matrix, sizes[cohort], clients=cohort)
        sent = model
        model, state = rule.aggregate(state, arrived)
        if beside is not None:
            everybody = arrived.received
            step = ServerStep(federation.layout, sent, matrix, sizes[cohort], everybody, cohort)
            model = beside.absorb(step, (), model)
            beside.settle(())
        index += 1
        yield


def _let_everybody_remember(exchange: Exchange) -> None:
    """A memory for every client, as after many rounds."""
    if exchange.memories is None:
        return
    for client in range(exchange.population):
        (row,) = exchange.memories.reserve(1)
        for vector in exchange.memories.place(row).values():
            vector.fill_(1e-6)
        exchange.memories.settle({client: row}, {client})

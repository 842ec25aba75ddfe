"""The engine that trains all clients' models as one batched model.

Where models and batches are small, most of the time goes to calling the operations, not to their
arithmetic; one call for the whole cohort instead of one for each client saves that. Rounding
differs in the last bits from clients trained alone, and is the same each time on one machine.
"""

import logging
import math
import time
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedhaw.clients import Vectors, algorithm_of
from fedhaw.clients.cohort import CohortTrainer
from fedhaw.errors import named
from fedhaw.listing import listed
from fedhaw.loss_reasons import NO_SAMPLES
from fedhaw.models.stack import Stack, stack
from fedhaw.simulation.engines.base import Beside, ClientReport
from fedhaw.simulation.engines.failures import reason, unusable
from fedhaw.simulation.engines.sequential import moved, train_one, trainer
from fedhaw.simulation.engines.threads import one_thread
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation

STACK_NUMBERS = 2**26
"""Numbers in the models of one stack; a larger cohort is trained in several stacks."""

logger = logging.getLogger(__name__)


@listed(__name__, "stacked", "all of them as one batched model, the same up to rounding")
class StackedEngine:
    """An engine that trains the cohort side by side, with one torch thread.

    Args:
        federation: what to train; its clients' algorithm must be `stackable`.
    """

    arithmetic: ClassVar[str] = "stacked"

    def __init__(self, federation: Federation) -> None:
        algorithm, layout = algorithm_of(federation.client_update), federation.layout
        if not algorithm.stackable:
            raise InvalidSimulation(
                "The stacked engine trains clients by a LocalUpdate or an algorithm that is "
                'stackable, not by a function of your own; use engine="processes" or "sequential".'
            )
        if federation.settings["deadline"] is not None:
            raise InvalidSimulation(
                "The stacked engine trains all clients at once and cannot keep a deadline for one "
                'of them; use engine="processes".'
            )
        models = stack(federation.module, layout, federation.loss, federation.device)
        x, y = federation.training_samples()
        rows = federation.holdings.rows[:2]
        _try_a_step(federation, models, x[rows], y[rows])
        self._federation = federation
        self._holdings = federation.holdings
        seed = federation.settings["seed"]
        self._train = CohortTrainer(federation.module, layout, algorithm, models, x, y, seed)
        self._height = max(1, STACK_NUMBERS // layout.size)

    def train(
        self,
        round_index: int,
        global_model: Tensor,
        cohort: Sequence[int],
        out: Tensor,
        beside: Beside | None = None,
    ) -> list[ClientReport]:
        """The same as in `Engine`."""
        holdings = self._holdings
        holdings.check(cohort)
        reports = {
            position: ClientReport(client, math.nan, 0.0, NO_SAMPLES)
            for position, client in enumerate(cohort)
        }
        # Only a client with samples has anything to train; equal sizes keep the cohort's order.
        positions = [i for i, client in enumerate(cohort) if holdings.size(client)]
        positions.sort(key=lambda i: -holdings.size(cohort[i]))
        with one_thread():
            for first in range(0, len(positions), self._height):
                chosen = positions[first : first + self._height]
                reports.update(
                    self._train_stack(round_index, global_model, cohort, chosen, out, beside)
                )
        return [reports[position] for position in range(len(cohort))]

    def close(self) -> None:
        """Nothing to release."""

    def _train_stack(
        self,
        round_index: int,
        global_model: Tensor,
        cohort: Sequence[int],
        positions: list[int],
        out: Tensor,
        beside: Beside | None,
    ) -> dict[int, ClientReport]:
        begin = time.perf_counter()
        clients = [cohort[position] for position in positions]
        try:
            rows = [self._holdings.rows_of(client) for client in clients]
            down, memory = _beside_models(beside, clients, self._federation.device)
            result = self._train(round_index, clients, rows, global_model, down, memory)
            losses = torch.as_tensor(result.loss).tolist()
        except Exception as error:
            # Someone in the stack failed; alone, each client fails or succeeds by itself.
            logger.warning(
                "Round %d: the clients cannot be trained as one stack (%s); training each alone.",
                round_index,
                reason(error),
            )
            return self._train_alone(round_index, global_model, cohort, positions, out, beside)
        seconds = (time.perf_counter() - begin) / len(clients)
        reports = {}
        for row, (position, client, loss) in enumerate(
            zip(positions, clients, losses, strict=True)
        ):
            model, up = result.model[row], _row(result.up, row)
            out[position] = model
            failure = unusable(loss, model, *up.values())
            if failure is None:
                if beside is not None:
                    beside.keep(client, up, _row(result.memory, row))
                length = moved(global_model, model, self._federation.layout.parameters)
                metrics = {n: float(torch.as_tensor(v)[row]) for n, v in result.metrics.items()}
                reports[position] = ClientReport(client, loss, seconds, None, length, metrics)
            else:
                reports[position] = ClientReport(client, math.nan, seconds, failure)
        return reports

    def _train_alone(
        self,
        round_index: int,
        global_model: Tensor,
        cohort: Sequence[int],
        positions: list[int],
        out: Tensor,
        beside: Beside | None,
    ) -> dict[int, ClientReport]:
        train = trainer(self._federation)
        with torch.random.fork_rng(devices=[]):
            return {
                position: train_one(
                    train,
                    self._holdings,
                    round_index,
                    cohort[position],
                    global_model,
                    out[position],
                    beside,
                )
                for position in positions
            }


def _beside_models(
    beside: Beside | None, clients: Sequence[int], device: torch.device
) -> tuple[Vectors, Vectors]:
    """What came down, and what the clients remember: in each vector a row for each of them."""
    if beside is None:
        return {}, {}
    each = [beside.memory(client) for client in clients]
    memory = {name: torch.stack([own[name] for own in each]).to(device) for name in each[0]}
    return beside.down, memory


def _row(vectors: Vectors, row: int) -> Vectors:
    return {name: vector[row] for name, vector in vectors.items()}


def _try_a_step(federation: Federation, models: Stack, x: Tensor, y: Tensor) -> None:
    """A trial on two samples: a module that vmap cannot batch fails here, not in every round."""
    if not len(y):
        return
    start = federation.initial_model.repeat(2, 1)
    gradient = start.new_empty(2, federation.layout.parameters)
    try:
        models.start(start)
        models.passes(slice(0, 2), len(y)).gradient(
            torch.stack([x] * 2), torch.stack([y] * 2), gradient
        )
    except Exception as error:
        raise InvalidSimulation(
            f"{type(federation.module).__name__} cannot be trained as a batch of models "
            f'({named(error)}); use engine="processes" or "sequential".'
        ) from error

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

from fedhaw.clients import LocalUpdate
from fedhaw.clients.cohort import CohortTrainer
from fedhaw.errors import named
from fedhaw.loss_reasons import NO_SAMPLES
from fedhaw.models.batches import batch_norms
from fedhaw.models.stack import Stack, stack
from fedhaw.simulation.engines.base import ClientReport
from fedhaw.simulation.engines.failures import reason, unusable
from fedhaw.simulation.engines.sequential import moved, train_one, trainer
from fedhaw.simulation.engines.threads import one_thread
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation

STACK_NUMBERS = 2**26
"""Numbers in the models of one stack; a larger cohort is trained in several stacks."""

logger = logging.getLogger(__name__)


class StackedEngine:
    """An engine that trains the cohort side by side, with one torch thread.

    Args:
        federation: what to train; its clients must follow a `LocalUpdate`.
    """

    arithmetic: ClassVar[str] = "stacked"

    def __init__(self, federation: Federation) -> None:
        update, layout = federation.client_update, federation.layout
        if not isinstance(update, LocalUpdate):
            raise InvalidSimulation(
                "The stacked engine trains clients by a LocalUpdate, not by a function of your "
                'own; use engine="processes" or "sequential".'
            )
        if federation.settings["deadline"] is not None:
            raise InvalidSimulation(
                "The stacked engine trains all clients at once and cannot keep a deadline for one "
                'of them; use engine="processes".'
            )
        models = stack(federation.module, layout, update.loss, federation.device)
        x, y = federation.training_samples()
        rows = federation.holdings.rows[:2]
        _try_a_step(federation, models, x[rows], y[rows])
        self._federation = federation
        self._holdings = federation.holdings
        self._train = CohortTrainer(
            models,
            layout.parameters,
            bool(batch_norms(federation.module)),
            update,
            x,
            y,
            federation.settings["seed"],
        )
        self._height = max(1, STACK_NUMBERS // layout.size)

    def train(
        self, round_index: int, global_model: Tensor, cohort: Sequence[int], out: Tensor
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
                reports.update(self._train_stack(round_index, global_model, cohort, chosen, out))
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
    ) -> dict[int, ClientReport]:
        begin = time.perf_counter()
        clients = [cohort[position] for position in positions]
        try:
            models = global_model.repeat(len(clients), 1)
            rows = [self._holdings.rows_of(client) for client in clients]
            losses = self._train(round_index, clients, rows, models).tolist()
        except Exception as error:
            # Someone in the stack failed; alone, each client fails or succeeds by itself.
            logger.warning(
                "Round %d: the clients cannot be trained as one stack (%s); training each alone.",
                round_index,
                reason(error),
            )
            return self._train_alone(round_index, global_model, cohort, positions, out)
        seconds = (time.perf_counter() - begin) / len(clients)
        reports = {}
        for position, client, loss, model in zip(positions, clients, losses, models, strict=True):
            out[position] = model
            failure = unusable(loss, model)
            if failure is None:
                length = moved(global_model, model, self._federation.layout.parameters)
                reports[position] = ClientReport(client, loss, seconds, None, length)
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
                )
                for position in positions
            }


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

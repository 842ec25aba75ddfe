"""The engine that trains all clients' models as one batched model.

Where models and batches are small, most of the time goes to calling the operations, not to their
arithmetic; one call for the whole cohort instead of one for each client saves that. Rounding
differs in the last bits from clients trained alone, and is the same each time on one machine.

A cohort is cut into stacks that stay in cache, and several threads take one after another; how it
is cut does not depend on their number. Only the closed form of perceptrons has several: a module of
somebody's own may keep something while it computes, and spends most of its time in the interpreter.
"""

import logging
import math
import time
from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import ClassVar

import torch
from torch import Tensor

from fedhaw.clients import Vectors, algorithm_of, steps_of
from fedhaw.clients.cohort import CohortTrainer
from fedhaw.errors import named
from fedhaw.listing import listed
from fedhaw.loss_reasons import NO_SAMPLES
from fedhaw.models.learner import closed_form_sizes
from fedhaw.models.stack import Stack, stack
from fedhaw.models.threads import one_thread
from fedhaw.rules.threads import available_cores, share_out
from fedhaw.simulation.engines.base import Beside, ClientReport, TrainingRound
from fedhaw.simulation.engines.failures import inspected, reason
from fedhaw.simulation.engines.sequential import train_one, trainer
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation

PERCEPTRON_NUMBERS, MODULE_NUMBERS = 5 * 2**17, 2**22
"""Numbers in the models of one stack, in closed form and not: what stays in cache, and what keeps
the interpreter's part small. Five of the letter's perceptrons go into one, so that two threads have
one stack each of ten clients: with four stacks they wait for each other's interpreter."""

STEP_NUMBERS = 2**26
"""Multiplications forward in one step of a stack, beyond which a higher one saves nothing."""

logger = logging.getLogger(__name__)


@listed(__name__, "stacked", "all of them as one batched model, the same up to rounding")
class StackedEngine:
    """An engine that trains the cohort side by side, in stacks of one torch thread each.

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
        module, loss, device = federation.module, federation.loss, federation.device
        in_closed_form = closed_form_sizes(module, loss) is not None
        threads = available_cores() if in_closed_form and device.type == "cpu" else 1
        stacks = [stack(module, layout, loss, device) for _ in range(threads)]
        x, y = federation.training_samples()
        rows = federation.holdings.rows[:2]
        _try_a_step(federation, stacks[0], x[rows], y[rows])
        seed = federation.settings["seed"]
        self._federation = federation
        self._holdings = federation.holdings
        self._trainers = [
            CohortTrainer(module, layout, algorithm, models, x, y, seed) for models in stacks
        ]
        self._alone = Lock()
        self._height = _height(federation, in_closed_form)

    def train(self, given: TrainingRound) -> list[ClientReport]:
        """The same as in `Engine`."""
        holdings, cohort = self._holdings, given.cohort
        holdings.check(cohort)
        reports = {
            position: ClientReport(client, math.nan, 0.0, NO_SAMPLES)
            for position, client in enumerate(cohort)
        }
        # Only a client with samples has anything to train; equal sizes keep the cohort's order.
        positions = [i for i, client in enumerate(cohort) if holdings.size(client)]
        positions.sort(key=lambda i: -holdings.size(cohort[i]))
        idle, stacks = list(self._trainers), self._stacks(positions)
        waiting = iter(stacks)

        def work() -> None:
            train = idle.pop()
            with one_thread():  # of the Python thread that says so
                for chosen in waiting:
                    reports.update(self._train_stack(train, given, chosen))

        share_out(work, min(len(idle), len(stacks)))
        return [reports[position] for position in range(len(cohort))]

    def _stacks(self, positions: list[int]) -> list[list[int]]:
        """The positions in stacks of much the same height, an even number for two cores or four."""
        count = -(-len(positions) // self._height)
        count += count % 2 if 1 < count < len(positions) else 0
        bounds = [len(positions) * i // max(count, 1) for i in range(count + 1)]
        return [positions[first:last] for first, last in pairwise(bounds)]

    def close(self) -> None:
        """Nothing to release."""

    def _train_stack(
        self, train: CohortTrainer, given: TrainingRound, positions: list[int]
    ) -> dict[int, ClientReport]:
        begin = time.perf_counter()
        clients = [given.cohort[position] for position in positions]
        global_model, beside = given.global_model, given.beside
        try:
            rows = [self._holdings.rows_of(client) for client in clients]
            down, memory = _beside_models(beside, clients, self._federation.device)
            result = train(given.round_index, clients, rows, global_model, down, memory)
            losses = torch.as_tensor(result.loss).tolist()
        except Exception as error:
            # Someone in the stack failed; alone, each client fails or succeeds by itself.
            logger.warning(
                "Round %d: the clients cannot be trained as one stack (%s); training each alone.",
                given.round_index,
                reason(error),
            )
            with self._alone:  # it sets torch's random state, of which there is one
                return self._train_alone(given, positions)
        seconds = (time.perf_counter() - begin) / len(clients)
        reports = {}
        for row, (position, client, loss) in enumerate(
            zip(positions, clients, losses, strict=True)
        ):
            model, up = result.model[row], _row(result.up, row)
            given.out[position].copy_(model)
            parameters = self._federation.layout.parameters
            length, failure = inspected(global_model, model, parameters, loss, up.values())
            if failure is None:
                if beside is not None:
                    beside.keep(client, up, _row(result.memory, row))
                metrics = {n: float(torch.as_tensor(v)[row]) for n, v in result.metrics.items()}
                reports[position] = ClientReport(client, loss, seconds, None, length, metrics)
            else:
                reports[position] = ClientReport(client, math.nan, seconds, failure)
        return reports

    def _train_alone(self, given: TrainingRound, positions: list[int]) -> dict[int, ClientReport]:
        train = trainer(self._federation)
        with torch.random.fork_rng(devices=[]):
            return {i: train_one(train, self._holdings, given, i) for i in positions}


def _height(federation: Federation, in_closed_form: bool) -> int:
    """How many clients are trained as one: a function of the federation alone."""
    numbers, steps = MODULE_NUMBERS, steps_of(federation.client_update)
    if in_closed_form and steps is not None:
        numbers = min(PERCEPTRON_NUMBERS, STEP_NUMBERS // steps.batch)
    return max(1, numbers // federation.layout.size)


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

"""The reference engine: one client after the other, in this process, with one torch thread."""

import math
import time
from collections.abc import Mapping
from typing import ClassVar

import torch

from fedhaw.clients import Trainer
from fedhaw.history import finite
from fedhaw.listing import listed
from fedhaw.loss_reasons import NO_SAMPLES
from fedhaw.models.threads import one_thread
from fedhaw.simulation.engines.base import ClientReport, TrainingRound
from fedhaw.simulation.engines.failures import inspected, reason
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.holdings import Holdings


@listed(__name__, "sequential", "one after the other")
class SequentialEngine:
    """An engine that trains the cohort in order.

    Args:
        federation: what to train; a model after its deadline counts as late, and therefore lost.
    """

    arithmetic: ClassVar[str] = "one by one"

    def __init__(self, federation: Federation) -> None:
        self._holdings = federation.holdings
        self._train = trainer(federation)
        self._deadline = federation.settings["deadline"]

    def train(self, given: TrainingRound) -> list[ClientReport]:
        """The same as in `Engine`."""
        self._holdings.check(given.cohort)
        # Clients seed torch's global generator; the caller's own draws must not notice.
        with one_thread(), torch.random.fork_rng(devices=[]):
            return [
                train_one(self._train, self._holdings, given, position, self._deadline)
                for position in range(len(given.cohort))
            ]

    def close(self) -> None:
        """Nothing to release."""


def trainer(federation: Federation) -> Trainer:
    """A trainer for the federation's clients."""
    x, y = federation.training_samples()
    module, layout, seed = federation.module, federation.layout, federation.settings["seed"]
    return Trainer(module, layout, federation.client_update, x, y, seed, federation.device)


def train_one(
    train: Trainer,
    holdings: Holdings,
    given: TrainingRound,
    position: int,
    deadline: float | None = None,
) -> ClientReport:
    """The report of one client of a cohort; an exception in training is a failure."""
    begin = time.perf_counter()
    client, global_model, beside = given.cohort[position], given.global_model, given.beside
    loss, length, failure = math.nan, math.nan, None
    metrics: Mapping[str, float] = {}
    try:
        if holdings.size(client):
            rows = holdings.rows_of(client)
            if beside is None:
                result = train(given.round_index, client, rows, global_model)
            else:
                also = beside.down, beside.memory(client)
                result = train(given.round_index, client, rows, global_model, *also)
            loss, model = float(result.loss), result.model
            parameters, up = train.layout.parameters, result.up
            length, failure = inspected(global_model, model, parameters, loss, up.values())
            metrics = finite(result.metrics.keys(), map(float, result.metrics.values()))
            given.out[position].copy_(model)
            if beside is not None:
                beside.keep(client, up, result.memory)
        else:
            failure = NO_SAMPLES
    except (Exception, SystemExit) as error:
        failure = reason(error)
    seconds = time.perf_counter() - begin
    if failure is None and deadline is not None and seconds > deadline:
        failure = f"later than {deadline:g} s"
    if failure is not None:
        return ClientReport(client, math.nan, seconds, failure)
    return ClientReport(client, loss, seconds, None, length, metrics)

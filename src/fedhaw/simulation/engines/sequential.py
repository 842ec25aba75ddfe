"""The reference engine: one client after the other, in this process, with one torch thread."""

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from fedhaw.clients import Trainer
from fedhaw.loss_reasons import NO_SAMPLES
from fedhaw.simulation.engines.base import ClientReport
from fedhaw.simulation.engines.failures import reason, unusable
from fedhaw.simulation.engines.federation import Federation, one_thread


class SequentialEngine:
    """Trains the cohort in order.

    Args:
        federation: what to train.
        deadline: seconds after which a client's model counts as late, and therefore lost.
    """

    def __init__(self, federation: Federation, deadline: float | None = None) -> None:
        self._federation = federation
        self._train = trainer(federation)
        self._deadline = deadline

    def train(
        self, round_index: int, global_model: Tensor, cohort: Sequence[int], out: Tensor
    ) -> list[ClientReport]:
        """See `Engine`."""
        self._federation.check(cohort)
        # Clients seed torch's global generator; the caller's own draws must not notice.
        with one_thread(), torch.random.fork_rng(devices=[]):
            return [
                train_one(
                    self._train,
                    self._federation,
                    round_index,
                    client,
                    global_model,
                    row,
                    self._deadline,
                )
                for client, row in zip(cohort, out, strict=True)
            ]

    def close(self) -> None:
        """Nothing to release."""


def trainer(federation: Federation) -> Trainer:
    """A trainer for the federation's clients."""
    parts = federation
    return Trainer(
        parts.module, parts.layout, parts.update, parts.x, parts.y, parts.seed, parts.device
    )


def train_one(
    train: Trainer,
    federation: Federation,
    round_index: int,
    client: int,
    global_model: Tensor,
    out: Tensor,
    deadline: float | None = None,
) -> ClientReport:
    """Train one client into `out`, (P,), and report; whatever its training raises is a failure."""
    begin = time.perf_counter()
    loss, length, failure = math.nan, math.nan, None
    try:
        if federation.size(client):
            loss, model = train(round_index, client, federation.rows_of(client), global_model)
            failure = unusable(loss, model)
            length = moved(global_model, model, federation.layout.parameters)
            out.copy_(model)
        else:
            failure = NO_SAMPLES
    except (Exception, SystemExit) as error:
        failure = reason(error)
    seconds = time.perf_counter() - begin
    if failure is None and deadline is not None and seconds > deadline:
        failure = f"later than {deadline:g} s"
    if failure is not None:
        return ClientReport(client, math.nan, seconds, failure)
    return ClientReport(client, loss, seconds, None, length)


def moved(global_model: Tensor, model: Tensor, parameters: int) -> float:
    """The length of a client's update, |w_k - w|, while both models are in cache."""
    return float(torch.dist(model[:parameters], global_model[:parameters]))

"""Flower's result of a run, told in the log as it grows."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

EvaluateFunction: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

log = logging.getLogger("flwr.fedhaw")


@dataclass(frozen=True)
class Results:
    """What comes of a run, round by round.

    Attributes:
        result: Flower's.
        evaluate: the server's own evaluation, if it has one.
    """

    result: Result
    evaluate: EvaluateFunction | None

    def begin(self) -> None:
        """The server's evaluation of the model that the run begins with."""
        if self.evaluate is None:
            return
        initial = self.evaluate(0, self.result.arrays)
        log.info("Initial global evaluation results: %s", initial)
        if initial is not None:
            self.result.evaluate_metrics_serverapp[0] = initial

    def trained(
        self, server_round: int, arrays: ArrayRecord | None, metrics: MetricRecord | None
    ) -> ArrayRecord:
        """The model to go on with: the new one, if there is one."""
        if arrays is not None:
            self.result.arrays = arrays
        if metrics is not None:
            log.info("\t└──> Aggregated MetricRecord: %s", metrics)
            self.result.train_metrics_clientapp[server_round] = metrics
        return self.result.arrays

    def evaluated(self, server_round: int, by_clients: MetricRecord | None) -> dict[str, float]:
        """What was measured of the new model: by the server, or else by the clients."""
        if by_clients is not None:
            log.info("\t└──> Aggregated MetricRecord: %s", by_clients)
            self.result.evaluate_metrics_clientapp[server_round] = by_clients
        evaluate = self.evaluate
        by_server = None if evaluate is None else evaluate(server_round, self.result.arrays)
        if by_server is not None:
            log.info("\t└──> Server's evaluation: %s", dict(by_server))
            self.result.evaluate_metrics_serverapp[server_round] = by_server
        measured: Mapping[str, object] = by_server or by_clients or {}
        return {name: v for name, v in measured.items() if isinstance(v, int | float)}

    def end(self, seconds: float) -> Result:
        """The whole of it."""
        log.info("Finished in %.1f s. Final results:", seconds)
        for line in str(self.result).splitlines():
            log.info("\t%s", line)
        return self.result

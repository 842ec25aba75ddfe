"""What is measured of a global model after a round.

On the test set: accuracy, loss, and the user's own metrics, under their names; on a further input
scale under NAME/SCALE. On the clients' own samples, if asked for: the accuracy of each, and over
the clients its mean, its worst and its spread, as fairness is usually reported.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from fedhaw.history import RoundRecord, finite
from fedhaw.models import EvaluationMetric, Evaluator
from fedhaw.models.threads import one_thread
from fedhaw.rules.threads import available_cores
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation

MOST_CLIENTS = 100
"""With more clients than these, only mean, worst and spread are written down."""


class ModelEvaluation:
    """The measuring of one global model after the other.

    Args:
        federation: whose test set and model it is, with the user's own metrics.

    Raises:
        InvalidSimulation: a metric's name is taken, or a metric is no function.
        InvalidMetric: a metric fails, which is tried with the initial model.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation, metrics = federation, federation.metrics
        at_clients = federation.settings["per_client_accuracy"]
        self._samples = federation.training_samples() if at_clients else None
        self._evaluator = Evaluator(
            federation.module,
            federation.layout,
            federation.loss,
            federation.device,
            _checked(metrics),
            threads=available_cores(),
        )
        if metrics:
            # A function that fails must fail before the first round, not after it.
            self._on_test_set(federation.initial_model)

    def __call__(self, model: Tensor, record: RoundRecord) -> RoundRecord:
        """A round's record with what is measured of its new model, (P,)."""
        with one_thread():
            evaluation, by_client = self._on_test_set(model), self._at_clients(model)
        if by_client:
            values = np.array(list(by_client.values()))
            over_clients = {"mean": values.mean(), "worst": values.min(), "spread": values.std()}
            evaluation |= {f"client_accuracy/{name}": v for name, v in over_clients.items()}
        return replace(
            record,
            evaluation=finite(evaluation.keys(), evaluation.values()),
            client_accuracy=by_client if len(by_client) <= MOST_CLIENTS else {},
        )

    def _on_test_set(self, model: Tensor) -> dict[str, float]:
        evaluation: dict[str, float] = {}
        own = next(iter(self._federation.x_test))
        for scale, x in self._federation.x_test.items():
            ending = "" if scale == own else f"/{scale}"
            measured = self._evaluator(model, x, self._federation.y_test)
            evaluation |= {name + ending: value for name, value in measured.items()}
        return evaluation

    def _at_clients(self, model: Tensor) -> dict[str, float]:
        if self._samples is None:
            return {}
        (x, y), holdings = self._samples, self._federation.holdings
        return {
            str(client): self._evaluator.accuracy(model, x[rows], y[rows])
            for client, rows in enumerate(map(holdings.rows_of, range(len(holdings))))
            if len(rows)
        }


def _checked(metrics: Mapping[str, EvaluationMetric]) -> Mapping[str, EvaluationMetric]:
    if not isinstance(metrics, Mapping):
        raise InvalidSimulation(f"metrics is {metrics!r}; give functions by name.")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name or "/" in name or name in ("accuracy", "loss"):
            raise InvalidSimulation(
                f"metrics names a metric {name!r}; choose a name without a slash that is neither "
                "accuracy nor loss."
            )
        if not callable(metric):
            raise InvalidSimulation(
                f"The metric {name!r} is {metric!r}; give a function (outputs, labels) -> number."
            )
    return metrics

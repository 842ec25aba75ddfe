"""Averages of what clients report, in an order that does not depend on who was fastest."""

import math
from collections.abc import Callable, Sequence
from operator import mul
from typing import TypeAlias

from flwr.app import MetricRecord, RecordDict

MetricsFunction: TypeAlias = Callable[[list[RecordDict], str], MetricRecord]
"""Flower's: (replies' contents, key of the number of examples) -> one record."""


def weighed(metrics: MetricRecord, examples_key: str, examples: float) -> RecordDict:
    """What a client reports, with as many examples as count in place of its own word."""
    if metrics.get(examples_key) != examples:
        metrics = MetricRecord({**metrics, examples_key: float(examples)})
    return RecordDict({"metrics": metrics})


def weighted_mean(contents: Sequence[RecordDict], examples_key: str) -> MetricRecord:
    """Each metric's mean, weighted by the number of examples, over the clients that report it.

    Lists are averaged place by place if all have the same length, and left out otherwise. What is
    not finite is not a report: one client's NaN says nothing of the others.
    """
    reported: dict[str, list[tuple[float, list[float], bool]]] = {}
    for content in contents:
        for record in content.values():
            if not isinstance(record, MetricRecord):
                continue
            weight = record.get(examples_key)
            if not isinstance(weight, (int, float)):
                continue
            for key, value in record.items():
                many = isinstance(value, list)
                numbers = [float(v) for v in value] if isinstance(value, list) else [float(value)]
                if key != examples_key and all(map(math.isfinite, numbers)):
                    reported.setdefault(key, []).append((float(weight), numbers, many))
    result = MetricRecord()
    for key, reports in reported.items():
        total = sum(weight for weight, _, _ in reports)
        if total > 0 and len({(len(numbers), many) for _, numbers, many in reports}) == 1:
            columns = zip(*(numbers for _, numbers, _ in reports), strict=True)
            shares = [weight / total for weight, _, _ in reports]
            means = [float(sum(map(mul, shares, column))) for column in columns]
            result[key] = means if reports[0][2] else means[0]
    return result

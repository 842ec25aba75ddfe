"""Clients that are bad: their data are spoilt, or they send something else than their update."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhaw.data import Dataset
from fedhaw.rules import LengthGuard, Rule
from fedhaw.rules.base import Array, Round, spared_by


@dataclass(frozen=True)
class Attacked:
    """A rule some of whose clients send a multiple of their update, behind the length guard.

    Attributes:
        rule: the server's.
        bad: who.
        factor: of the update; 0 for a free rider, which adds noise of a tenth of its length.
    """

    rule: Rule[Any]
    bad: tuple[int, ...]
    factor: float

    def init(self) -> Any:
        """The state before the first round."""
        return self.rule.init()

    def aggregate(self, state: Any, current: Round) -> tuple[Array, Any]:
        """What the rule makes of what the clients claim."""
        w, W = current.global_model, current.client_models.clone()
        for k, name in enumerate(current.clients):
            if name in self.bad and current.received[k]:
                update = W[k] - w
                noise = update[np.random.default_rng(k).permutation(len(w))]
                W[k] = w + (self.factor * update if self.factor else 0.1 * noise)
        names, examples = current.clients, np.asarray(current.num_examples, dtype=float).tolist()
        here = [int(k) for k in np.flatnonzero(current.received)]
        lengths = {names[k]: float((W[k] - w).norm()) for k in here}
        known = {names[k]: examples[k] for k in here}
        refused, _ = LengthGuard().judge(lengths, known, spared_by(state))
        received = current.received & [name not in refused for name in names]
        W[np.flatnonzero(~received)] = w
        return self.rule.aggregate(state, replace(current, client_models=W, received=received))


def poisoned(data: Dataset, parts: list[Any], bad: tuple[int, ...], kind: str) -> Dataset:
    """The data set with the bad clients' samples spoilt."""
    random, x, y = np.random.default_rng(0), data.x_train.copy(), data.y_train.copy()
    rows = np.concatenate([parts[k] for k in bad]) if bad else np.zeros(0, np.int64)
    match kind:
        case "labels":
            y[rows] = random.integers(0, data.classes, len(rows))
        case "flipped":
            y[rows] = data.classes - 1 - y[rows]
        case "inputs":
            x[rows] = random.integers(0, 256, x[rows].shape)
    return replace(data, name=f"{data.name}-{kind}", x_train=x, y_train=y, whole_labels=None)

"""Whether FedHAW goes with any client update: the letter's claim, on its MNIST federation.

Every client algorithm under every rule, with and without lost uploads, read as the letter reads its
FedProx table: accuracy after one fifth, two fifths, ... of the rounds. All see the same split,
initial models, client randomness and losses, so that differences are taken seed by seed.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhaw.experiments.job import Job, Watch
from fedhaw.experiments.letter import DataName, LetterConditions, base_recipe, letter, with_rule
from fedhaw.experiments.recipe import Recipe
from fedhaw.experiments.sharing import Sharing
from fedhaw.experiments.sweep import run_sweep
from fedhaw.history import History
from fedhaw.reports import Column, Spread, Table, write_table
from fedhaw.reports.metrics import ACCURACY
from fedhaw.rules.registry import title_of

DATA: DataName = "mnist"

CLIENTS: dict[str, dict[str, object]] = {
    "SGD": {"client_update": "sgd"},
    "FedProx": {"client_update": "fedprox"},
    "SCAFFOLD": {"client_update": "scaffold"},
    "FedDyn": {"client_update": "feddyn", "clip": 10.0},  # as its authors do
    "FedNova": {"client_update": "fednova"},
    "client momentum": {"client_update": "sgd", "momentum": 0.9},
}
"""What clients do, by title."""

RULES = ("fedavg", "fedhaw", "fedhaw-auto")
LOSS_RATES = (0.0, 0.5)
MOMENTS = 5


@dataclass(frozen=True)
class AnyClientPlan:
    """Which runs there are, and where.

    Attributes:
        seeds: each once.
        conditions: full or smaller, and further keys of the recipes.
        out: folder of everything.
    """

    seeds: tuple[int, ...]
    conditions: LetterConditions
    out: Path

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every run, seed by seed."""
        return tuple(
            self.job(client, rule, loss_rate, seed)
            for seed, loss_rate, client, rule in product(self.seeds, LOSS_RATES, CLIENTS, RULES)
        )

    def job(self, client: str, rule: str, loss_rate: float, seed: int) -> Job:
        """One run."""
        federation = self._base.with_(alpha=0.1, loss_rate=loss_rate, seed=seed, **CLIENTS[client])
        place = f"{client.lower().replace(' ', '-')}-pe{loss_rate:g}"
        runs = self.conditions.runs(self.out)
        folder = runs / f"any-client-{self.conditions.size}" / place / rule
        label = f"{client} {title_of(rule)} p_e {loss_rate:g}"
        recipe = with_rule(federation, DATA, rule)
        return Job(label, recipe, folder / f"seed-{seed}", f"{client} + {title_of(rule)}")

    @property
    def moments(self) -> tuple[int, ...]:
        """The rounds t_1 to t_5 in which accuracy is read."""
        rounds = self._base.settings["rounds"]
        return tuple(max(i * rounds // MOMENTS - 1, 0) for i in range(1, MOMENTS + 1))

    @property
    def notice(self) -> str:
        """How the runs differ from the letter's federation, or ""."""
        size = letter()["sizes"].get(self.conditions.size, {}).get(DATA, {})
        return f"Smaller than the letter's experiment: {size['notice']}." if size else ""

    @property
    def _base(self) -> Recipe:
        return base_recipe(DATA, self.conditions)


@dataclass(frozen=True, eq=False)
class AnyClientResult:
    """The tables, one for each loss rate, and the files they were written to.

    Attributes:
        tables: in the order of the loss rates.
        paths: three for each table.
        accuracy: (loss rates, clients, rules, seeds, moments) in percent.
    """

    tables: tuple[Table, ...]
    paths: tuple[Path, ...]
    accuracy: NDArray[np.float64]

    def described(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "tables": [
                {
                    "loss_rate": loss_rate,
                    "cells": [
                        {
                            "client": client,
                            "rule": rule,
                            "accuracy": self.accuracy[i, j, k].mean(0).tolist(),
                            "seeds": self.accuracy.shape[3],
                        }
                        for (j, client), (k, rule) in product(enumerate(CLIENTS), enumerate(RULES))
                    ],
                }
                for i, loss_rate in enumerate(LOSS_RATES)
            ],
            "files": [str(path) for path in self.paths],
        }


def any_client(
    plan: AnyClientPlan, watch: Watch = lambda event: None, sharing: Sharing | None = None
) -> AnyClientResult:
    """A run of what has not finished yet; the tables are written at the end.

    Args and errors are those of `run_sweep`, with a plan in place of its jobs.
    """
    if plan.conditions.kept is None:
        run_sweep(plan.jobs, watch, sharing)
    read = [
        [_accuracy(plan, plan.job(client, rule, rate, seed)) for seed in plan.seeds]
        for rate, client, rule in product(LOSS_RATES, CLIENTS, RULES)
    ]
    accuracy = np.reshape(read, (len(LOSS_RATES), len(CLIENTS), len(RULES), -1, MOMENTS))
    tables = tuple(_table(plan, rate, accuracy[i]) for i, rate in enumerate(LOSS_RATES))
    paths = tuple(
        path
        for rate, table in zip(LOSS_RATES, tables, strict=True)
        for path in write_table(plan.out / f"any-client-{plan.conditions.size}-pe{rate:g}", table)
    )
    return AnyClientResult(tables, paths, accuracy)


def _accuracy(plan: AnyClientPlan, job: Job) -> list[float]:
    values = ACCURACY.read(History.read(job.folder))
    return [100 * float(values[t]) for t in plan.moments]


def _table(plan: AnyClientPlan, rate: float, accuracy: NDArray[np.float64]) -> Table:
    """The table of one loss rate, from (clients, rules, seeds, moments) accuracies."""
    columns = [Column(f"t{i} = {t}") for i, t in enumerate(plan.moments, start=1)]
    rows = []
    for (j, client), (k, rule) in product(enumerate(CLIENTS), enumerate(RULES)):
        own, averaged = accuracy[j, k], accuracy[j, 0]
        gain = None if k == 0 else _shown(own[:, -1] - averaged[:, -1], sign="+")
        cells = [_shown(own[:, i]) for i in range(MOMENTS)]
        rows.append((client, title_of(rule), *cells, gain))
    title = "without losses" if rate == 0 else f"p_e = {rate:g}"
    return Table(
        (Column("Clients"), Column("Rule"), *columns, Column("t5, beside FedAvg")),
        tuple(rows),
        title=f"MNIST, D_alpha 0.1, {title}: any client update under three rules",
        notice=plan.notice or None,
        notes=(
            f"Accuracy in %, mean ± sample standard deviation over {len(plan.seeds)} seeds; the "
            "last column is the difference, seed by seed, from the same clients under FedAvg.",
        ),
    )


def _shown(values: NDArray[np.float64], sign: str = "") -> str:
    spread = Spread.of(values.tolist())
    deviation = f" ± {spread.std:.2f}" if spread.seeds > 1 else ""
    return f"{spread.mean:{sign}.2f}{deviation}"

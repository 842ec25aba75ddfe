"""How far honest clients go: what the limits on length and on opposition must let pass.

    python benchmarks/honest_updates.py [--only TEXT] [--wisdm FILE] [--seeds 1] [--save]

Shown is, for each federation and rule, over 30 rounds or more of each seed, the longest update
beside what `fedhaw.rules.lengths` calls usual: as it is, and divided by the client's data beside
the median's, where it has more. And, under FedHAW-auto, of the updates that were against all others
of their round (`fedhaw.rules.opposition`), the longest beside the round's median, and of those that
were LONGER, how far their growth lay beyond all others' at most. Nobody is refused while
this is measured.
"""

import argparse
import math
from collections.abc import Container, Iterator, Mapping
from statistics import median_low
from typing import Any
from unittest import mock

import numpy as np
from record import Record

import fedhaw
from fedhaw.rules import LengthGuard, Rule, fedhaw_auto, opposition
from fedhaw.rules.base import Vector

MNIST: dict[str, Any] = {"data": "mnist-5k", "batch": 32}
UPDATES: dict[str, dict[str, Any]] = {
    f"SGD {eta:g}": {"eta": eta} for eta in (0.001, 0.01, 0.1, 0.15)
} | {
    "SGD 0.05, 5 epochs": {"eta": 0.05, "epochs": 5},
    "momentum 0.01": {"eta": 0.01, "momentum": 0.9},
    "Adam 0.001": {"client_update": "adam", "eta": 1e-3},
    "Adam 0.0001": {"client_update": "adam", "eta": 1e-4},
    "linear, Adam 0.0005": {"client_update": "adam", "eta": 5e-4, "model": "logistic"},
}
UNEQUAL: dict[str, dict[str, Any]] = {
    "sizes unequal": {"split": "dirichlet", "alpha": 0.1},
    "10 of 100, sizes unequal": {
        "split": "dirichlet", "alpha": 0.1, "clients": 100, "cohort": 10,
    },
}  # fmt: skip
RULES: dict[str, Rule[Any]] = {"FedAvg": fedhaw.FedAvg(), "FedHAW-auto": fedhaw.FedHAWAuto()}
WISDM = {"model": "mlp-64", "split": "holders", "clients": 36, "batch": 16}


def federations(wisdm: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and settings of each."""
    for alpha in (0.1, 1.0):
        for name, update in UPDATES.items():
            yield f"D_alpha {alpha:g}, {name}", MNIST | {"alpha": alpha} | update
    for kind in ("SGD 0.01", "SGD 0.1"):
        name = f"D_alpha 0.1, {kind}, 250 rounds"
        yield name, MNIST | {"alpha": 0.1, "rounds": 250} | UPDATES[kind]
    for name, split in UNEQUAL.items():
        for kind in ("SGD 0.1", "Adam 0.001"):
            yield f"{name}, {kind}", MNIST | split | UPDATES[kind]
    if wisdm:
        for name, update in {"SGD 0.05": {"eta": 0.05}, "Adam": UPDATES["Adam 0.001"]}.items():
            yield f"WISDM by person, {name}", {"data": wisdm} | WISDM | update


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", default="", help="federations with this text in their name")
    arguments.add_argument("--wisdm", help="wisdm.npz")
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--save", action="store_true", help="write results/honest_updates.txt")
    options = arguments.parse_args()
    chosen = [(name, s) for name, s in federations(options.wisdm) if options.only in name]
    with Record("honest_updates", options.save) as record:
        record.table(
            f"Lengths and angles of honest updates, {options.seeds} seeds",
            ("federation", "longest", "by data", "longest against", "growth beyond"),
            (
                (f"{name}, {title}", *measured(rule, options.seeds, settings))
                for name, settings in chosen
                for title, rule in RULES.items()
            ),
        )


def measured(rule: Rule[Any], seeds: int, settings: Mapping[str, Any]) -> list[str]:
    """The most of each number over all rounds; "-" where there is none."""
    lengths_seen: list[tuple[float, float]] = []
    opposed_seen: list[tuple[float, float]] = []
    judge = LengthGuard.judge

    def judged(
        guard: LengthGuard,
        lengths: Mapping[Any, float],
        examples: Mapping[Any, float],
        spared: Container[Any] = (),
    ) -> tuple[dict[Any, str], LengthGuard]:
        usual, typical = guard.usual(lengths), median_low([*examples.values()] or [1.0])
        if usual:
            times = {client: length / usual for client, length in lengths.items()}
            by_data = (t / max(1.0, examples[c] / typical) for c, t in times.items())
            lengths_seen.append((max(times.values()), max(by_data)))
        return {}, judge(guard, lengths, examples, spared)[1]

    def opposed(
        gram: Vector, shares: Vector, growth: Vector, turned: Vector, most: int, _: float
    ) -> opposition.Opponents:
        found = opposition.opposed(gram, shares, growth, turned, most)  # of any length: see below
        lengths, others = np.sqrt(np.diag(gram)), np.delete(growth, found.updates)
        for update in found.updates:
            length, own = float(lengths[update] / np.median(lengths)), growth[update]
            beyond = float(max(others.min() - own, own - others.max()))
            opposed_seen.append((length, beyond if length > longer else -math.inf))
        return opposition.Opponents()

    longer = opposition.LONGER
    with (
        mock.patch.object(LengthGuard, "judge", judged),
        mock.patch.object(fedhaw_auto, "opposed", opposed),
        mock.patch.multiple(opposition, LONGER=0.0, FAR_LONGER=0.0),
    ):
        for seed in range(seeds):
            fedhaw.simulate(rule, **{"rounds": 30, "evaluate_every": 30, "seed": seed, **settings})
    columns = [*zip(*lengths_seen, strict=True)], [*zip(*opposed_seen, strict=True)] or [(), ()]
    return [
        f"{max(column):{form}}" if column and max(column) > -math.inf else "-"
        for columns_of_one, forms in zip(columns, ((".2f", ".2f"), (".2f", ".3f")), strict=True)
        for column, form in zip(columns_of_one, forms, strict=True)
    ]


if __name__ == "__main__":
    main()

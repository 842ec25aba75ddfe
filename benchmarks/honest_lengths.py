"""How far honest clients go beside each other: what a limit on the length of updates must let pass.

    python benchmarks/honest_lengths.py [--only TEXT] [--wisdm FILE]

Printed is, for each federation, rule and seed, the longest update of 30 rounds beside what
`fedhaw.rules.lengths` calls usual: as it is, and divided by the client's data beside the median's,
where it has more. Nobody is refused while this is measured.
"""

import argparse
from collections.abc import Iterator, Mapping
from statistics import median_low
from typing import Any
from unittest import mock

import fedhaw
from fedhaw.rules import LengthGuard

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
WISDM = {"model": "mlp-64", "split": "holders", "clients": 36, "batch": 16}


def federations(wisdm: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and settings of each."""
    for alpha in (0.1, 1.0):
        for name, update in UPDATES.items():
            yield f"D_alpha {alpha:g}, {name}", MNIST | {"alpha": alpha} | update
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
    options = arguments.parse_args()
    seen: list[tuple[float, float]] = []
    judge = LengthGuard.judge

    def measured(
        guard: LengthGuard, lengths: Mapping[Any, float], examples: Mapping[Any, float]
    ) -> tuple[dict[Any, str], LengthGuard]:
        usual, typical = guard.usual(lengths), median_low([*examples.values()] or [1.0])
        if usual:
            times = {client: length / usual for client, length in lengths.items()}
            by_data = (t / max(1.0, examples[c] / typical) for c, t in times.items())
            seen.append((max(times.values()), max(by_data)))
        return {}, judge(guard, lengths, examples)[1]

    with mock.patch.object(LengthGuard, "judge", measured):
        for name, settings in federations(options.wisdm):
            for rule in (fedhaw.FedAvg(), fedhaw.FedHAWAuto()):
                for seed in (0, 1) if options.only in name else ():
                    seen.clear()
                    fedhaw.simulate(rule, seed=seed, rounds=30, evaluate_every=30, **settings)
                    longest, by_data = (max(column) for column in zip(*seen, strict=True))
                    cells = f"{longest:6.2f} {by_data:6.2f}"
                    print(f"{name:36}{type(rule).__name__:12}seed {seed} {cells}", flush=True)


if __name__ == "__main__":
    main()

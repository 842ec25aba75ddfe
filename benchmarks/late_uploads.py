"""What uploads are worth that come late, beside the same uploads lost.

    python benchmarks/late_uploads.py [--seeds 4] [--save]

mnist-5k, ten clients, D_alpha 0.1, 40 rounds; client k misses a round with a probability of its own
of up to 0.8. What misses it is lost, or comes 1, 2, ... rounds later, 3 on average. A cell is the
accuracy in %, averaged over the last ten rounds and the seeds: single rounds differ by several
points where clients hold few classes each. The gain is that of the same seeds, with its standard
error.
"""

import argparse
import math
from typing import Any

import numpy as np
from record import Record

import fedhaw
from fedhaw.rules import Rule

RULES: dict[str, Rule[Any]] = {"FedAvg": fedhaw.FedAvg(), "FedHAW-auto": fedhaw.FedHAWAuto()}
LAST = 10


def accuracies(rule: Rule[Any], uplink: str, eta: float, seeds: int) -> list[float]:
    """The accuracy of each seed in %."""
    return [
        100 * float(np.mean(history.accuracy[-LAST:]))
        for seed in range(seeds)
        for history in [
            fedhaw.simulate(
                rule, "mnist-5k", alpha=0.1, eta=eta, loss_rate=0.8, uplink=uplink, seed=seed
            )
        ]
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--seeds", type=int, default=4)
    arguments.add_argument("--save", action="store_true", help="write results/late_uploads.txt")
    options = arguments.parse_args()

    def row(title: str, eta: float) -> tuple[str, ...]:
        lost, late = (
            accuracies(RULES[title], uplink, eta, options.seeds) for uplink in ("letter", "late")
        )
        gains = np.subtract(late, lost)
        error = gains.std(ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        return (
            f"{title}, SGD {eta:g}",
            *(f"{np.mean(column):.1f}" for column in (lost, late)),
            f"{gains.mean():+.1f} ± {error:.1f}",
        )

    with Record("late_uploads", options.save) as record:
        record.table(
            f"Accuracy in %, {options.seeds} seeds",
            ("rule, clients", "lost", "late", "gain"),
            (row(title, eta) for title in RULES for eta in (0.01, 0.03, 0.1)),
        )


if __name__ == "__main__":
    main()

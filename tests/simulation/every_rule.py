"""A rule of every kind that keeps something between two rounds, and whether two runs are one."""

from dataclasses import replace
from typing import Any

from suite import FORMULAS

from fedhaw import (
    MIFA,
    Clipped,
    FedAdp,
    FedAU,
    FedAvg,
    FedAvgM,
    FedAWA,
    FedHAW,
    FedHyperG,
    FedLAW,
    FedLWS,
    FedVARP,
    FedYogi,
)
from fedhaw.history import History, RoundRecord

RULES: dict[str, Any] = {
    "fedavg": FedAvg(),
    "fedadp": FedAdp(),
    "fedhyper": FedHyperG(),
    "fedlws": FedLWS(),
    "fedlaw": lambda federation: FedLAW(federation.proxy_losses(), epochs=3),
    "fedhaw": FedHAW(0.1, 1e-2, 1e-1),
    "fedhaw-bfloat16": FedHAW(0.1, 1e-2, 1e-1, history_dtype="bfloat16"),
    "fedhaw-gamma": FedHAW(0.1, 1e-2, 1e-1, learn="gamma"),
    "fedhaw-by-formula": FORMULAS["fedhaw_by_formula"](0.1, 1e-2, 1e-1),
    "fedavgm": FedAvgM(),
    "fedyogi": FedYogi(),
    "mifa": MIFA(),
    "fedvarp": FedVARP(),
    "fedau": FedAU(),
    "fedawa": FedAWA(),
    "clipped-fedhaw": Clipped(FedHAW(0.1, 1e-2, 1e-1)),
}


def without_times(history: History) -> list[RoundRecord]:
    return [replace(record, seconds={}) for record in history.records]


def same(a: History, b: History) -> bool:
    assert a.model is not None
    assert b.model is not None
    return without_times(a) == without_times(b) and a.model.tobytes() == b.model.tobytes()

"""The letter's MNIST federation, on the real data."""

from pathlib import Path

import pytest

from fedhaw import FedAvg, FedHAW, simulate
from fedhaw.simulation.run import RuleSource


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "least", "most"),
    [
        # The letter reports 82.96 and 88.16; single runs of FedHAW lie between 85.6 and 88.
        pytest.param(FedAvg(), 0.815, 0.845, id="fedavg"),
        pytest.param(FedHAW(eta=1e-3, eta_gamma=1e-3, eta_lambda=1e-2), 0.85, 0.89, id="fedhaw"),
    ],
)
def test_accuracy_after_200_rounds(
    published: Path, rule: RuleSource, least: float, most: float
) -> None:
    history = simulate(
        rule, "mnist", data_dir=published, split="letter", alpha=0.1, eta=1e-3, batch=64,
        rounds=200, evaluate_every=10,
    )  # fmt: skip
    assert least < history.accuracy[-1] < most
    assert history.lost.sum() == 0  # no honest update is absurdly long

"""Differential privacy in Flower: true, or refused."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)

import fedhaw
from fedhaw.flower import InvalidSetting, RuleStrategy
from fedhaw.rules import InvalidRule, Median
from fedhaw.rules.private import Privacy


def federation(flower: SimpleNamespace, steps: dict[int, float]) -> Any:
    return flower.Grid({node: flower.moving(str(node), step) for node, step in steps.items()})


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda s: DifferentialPrivacyServerSideFixedClipping(s, 1.0, 1.0, 2),
        lambda s: DifferentialPrivacyClientSideFixedClipping(s, 1.0, 1.0, 2),
        lambda s: DifferentialPrivacyServerSideAdaptiveClipping(s, 1.0, 200),
        lambda s: DifferentialPrivacyClientSideAdaptiveClipping(s, 1.0, 200),
    ],
)
def test_flowers_wrappers_are_refused(
    flower: SimpleNamespace, arrays: ArrayRecord, wrapper: Any
) -> None:
    grid = federation(flower, {1: 0.1, 2: 0.2})
    with pytest.raises(InvalidSetting, match="privacy=Privacy"):
        wrapper(RuleStrategy()).start(grid, arrays, num_rounds=1)
    assert not grid.sent


class TestWithAnAccountant:
    """What needs dp-accounting."""

    @pytest.fixture(autouse=True)
    def accountant(self) -> None:
        """Skips these tests where nobody counts epsilon."""
        pytest.importorskip("dp_accounting", reason='pip install "fedhaw[privacy]"')

    def test_the_model_is_clipped_and_noised_and_epsilon_reported(
        self, flower: SimpleNamespace, arrays: ArrayRecord
    ) -> None:
        privacy = Privacy(noise_multiplier=0.5, clip=0.1)
        strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, privacy=privacy)
        grid = federation(flower, {1: 1e6, 2: 0.0})
        result = strategy.start(grid, arrays, num_rounds=3)
        moved = np.concatenate(
            [
                (result.arrays[name].numpy() - arrays[name].numpy()).ravel()
                for name in ("a.weight", "a.bias", "b.weight")
            ]
        )
        # Three rounds of at most 0.1 / 2 from the liar, and noise of 0.5 * 0.1 / 2 a number.
        assert 0.005 < np.abs(moved).max() < 0.4
        assert result.train_metrics_clientapp[3]["epsilon"] == privacy.epsilon(3)
        assert result.train_metrics_clientapp[3]["clients-lost"] == 0
        # Whole numbers are one client's own: the server keeps its own.
        assert result.arrays["b.count"].numpy() == arrays["b.count"].numpy()

    def test_a_server_that_goes_on_counts_on(
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Any
    ) -> None:
        privacy = Privacy(noise_multiplier=1.0, clip=0.1, quantile=0.5)
        for rounds in (2, 4):
            strategy = RuleStrategy(
                fraction_evaluate=0.0, privacy=privacy, checkpoint=tmp_path / "c.safetensors"
            )
            grid = federation(flower, {1: 0.1, 2: 0.2})
            result = strategy.start(grid, arrays, num_rounds=rounds)
        # Models of the third round may have gone out before the first server stopped.
        assert result.train_metrics_clientapp[4]["epsilon"] == privacy.epsilon(5)

    def test_running_statistics_are_refused(
        self, flower: SimpleNamespace, arrays: ArrayRecord
    ) -> None:
        arrays["a.running_mean"] = arrays["a.bias"]
        strategy = RuleStrategy(privacy=Privacy(1.0, 1.0))
        with pytest.raises(InvalidSetting, match="group norm"):
            strategy.start(federation(flower, {1: 0.1, 2: 0.1}), arrays, num_rounds=1)

    def test_what_cannot_be_private_is_refused(self) -> None:
        with pytest.raises(InvalidRule, match="Median looks at each client"):
            RuleStrategy(Median(), privacy=Privacy(1.0, 1.0))
        with pytest.raises(InvalidSetting, match="leave clip= out"):
            RuleStrategy(privacy=Privacy(1.0, 1.0), clip=1.0)

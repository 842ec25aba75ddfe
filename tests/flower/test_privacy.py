"""Differential privacy in Flower: true, or refused."""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
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
from fedhaw.files import FileWriteError
from fedhaw.flower import CheckpointError, InvalidSetting, RuleStrategy
from fedhaw.history import HistoryError
from fedhaw.rules import InvalidRule, Median, Private, Round
from fedhaw.rules.private import Privacy


def federation(flower: SimpleNamespace, steps: dict[int, float]) -> Any:
    return flower.Grid({node: flower.moving(str(node), step) for node, step in steps.items()})


class Killed(BaseException):
    """As rude as a signal."""


class Starts:
    """Servers one after the other that share a checkpoint."""

    def __init__(
        self, flower: SimpleNamespace, arrays: ArrayRecord, folder: Path, **settings: Any
    ) -> None:
        self.flower, self.arrays, self.folder = flower, arrays, folder
        self.settings = {"privacy": Privacy(1.0, 0.1), **settings}

    def __call__(self, rounds: int, killed_in: int | None = None, **more: Any) -> "Started":
        """One server that is killed in a round, after its models went out, or comes to the end."""
        strategy = RuleStrategy(
            fraction_evaluate=0.0,
            checkpoint=self.folder / "c.safetensors",
            **{"rule": fedhaw.FedAvg(), **self.settings, **more},
        )

        def evaluate(server_round: int, _: ArrayRecord) -> None:
            if server_round == killed_in:
                raise Killed

        grid, result = federation(self.flower, {1: 0.1, 2: 0.2}), None
        with suppress(Killed):
            result = strategy.start(grid, self.arrays, rounds, evaluate_fn=evaluate)
        return Started(strategy, result)


@dataclass
class Started:
    """What became of a server."""

    strategy: RuleStrategy
    result: Any

    @property
    def rounds(self) -> int:
        """For how many rounds its epsilon stands."""
        rule: Any = self.strategy.rule
        epsilon = self.strategy.state.epsilon
        return next(n for n in range(1, 1000) if rule.privacy.epsilon(n) == epsilon)


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
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path, privacy=Privacy(1.0, 0.1, quantile=0.5))
        assert start(2).rounds == 2
        assert start(2).rounds == 2  # nobody was asked
        assert start(4).rounds == 4
        assert start(5, killed_in=5).rounds == 5
        assert start(5).rounds == 6  # the fifth may have gone out twice
        assert start(5).rounds == 6

    def test_what_went_out_before_the_first_checkpoint_counts(
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path, checkpoint_every=10)
        secret = start(20, killed_in=9).strategy.state.secret
        again = start(10)
        assert again.rounds == 10 + 10
        assert again.strategy.state.secret == secret
        afresh = start(1, resume_from=0)
        assert afresh.rounds == 1
        assert afresh.strategy.state.secret != secret

    def test_a_server_that_is_killed_again_and_again_counts_every_time(
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path, checkpoint_every=10)
        start(10)
        for _ in range(6):
            start(40, killed_in=19)
        # As many as the killed servers may have sent, whatever is asked for now.
        assert start(20, checkpoint_every=1).rounds == 20 + 6 * 10

    @pytest.mark.parametrize("kept", [1, 50])
    def test_rounds_that_were_gone_back_behind_count(
        self, kept: int, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path, checkpoints_kept=50)
        start(30)
        start(40, killed_in=6, resume_from=5, checkpoints_kept=kept)
        assert start(5, resume_from=5).rounds == 30 + 1
        again = start(6)
        assert sorted(again.result.train_metrics_clientapp) == [6]
        assert again.rounds == 30 + 1 + 1

    def test_a_start_that_asks_nobody_counts_nothing(
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path, checkpoints_kept=50)
        start(5)
        wrong = tmp_path / "mistyped.jsonl"
        for _ in range(3):
            with pytest.raises(HistoryError):
                start(5, resume_from=3, history=wrong)
        assert start(3, resume_from=3).rounds == 5
        assert start(4).rounds == 5 + 1

    @pytest.mark.parametrize("resume_from", [None, 2])
    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [
            ("noise_multiplier", 8.0, "1.0 vs 8.0"),
            ("clip", 0.2, "0.1 vs 0.2"),
            ("quantile", 0.5, "None vs 0.5"),
            ("delta", 1e-5, "1e-06 vs 1e-05"),
        ],
    )
    def test_the_privacy_of_a_run_does_not_change(
        self,
        option: str,
        value: float,
        said: str,
        resume_from: int | None,
        flower: SimpleNamespace,
        arrays: ArrayRecord,
        tmp_path: Path,
    ) -> None:
        start = Starts(flower, arrays, tmp_path)
        start(3)
        before = {file.name: file.read_bytes() for file in tmp_path.glob("c*")}
        other = replace(Privacy(1.0, 0.1), **{option: value})
        with pytest.raises(CheckpointError) as refusal:
            start(4, privacy=other, resume_from=resume_from)
        assert str(refusal.value).endswith(
            f"belongs to a run with another privacy (privacy.{option}: {said}: there vs here), and "
            "it cannot change within a run; go on with that one, or choose another file for a new "
            "run."
        )
        assert before == {file.name: file.read_bytes() for file in tmp_path.glob("c*")}
        assert start(4, resume_from=resume_from).rounds == 4 + (resume_from == 2)

    def test_the_rule_within_may_change_where_that_is_meant(
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path)
        start(3, rule=fedhaw.FedAvgM(beta=0.5))
        assert start(4, rule=fedhaw.FedAvgM(beta=0.6), resume_from=3).rounds == 4

    def test_a_damaged_checkpoint_hides_no_round(
        self, flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
    ) -> None:
        start = Starts(flower, arrays, tmp_path)
        start(5)
        (tmp_path / "c-000005.safetensors").write_bytes(b"damaged")
        # Four, the one that was foreseen there, one more that the file speaks of, the fifth again.
        assert start(5).rounds == 4 + 1 + 1 + 1

    @pytest.mark.parametrize("kept", ["checkpoint", "history", "both"])
    @pytest.mark.parametrize("full_in", [2, 3])
    def test_a_full_disk_stops_only_what_would_cost_more_than_is_foreseen(
        self,
        full_in: int,
        kept: str,
        flower: SimpleNamespace,
        arrays: ArrayRecord,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def disk(server_round: int, _: ArrayRecord) -> None:
            if server_round == full_in:
                monkeypatch.setattr("os.fsync", full)

        strategy = RuleStrategy(
            fedhaw.FedAvg(),
            fraction_evaluate=0.0,
            privacy=Privacy(1.0, 0.1),
            checkpoint=None if kept == "history" else tmp_path / "c.safetensors",
            history=None if kept == "checkpoint" else tmp_path / "h.jsonl",
        )
        grid = federation(flower, {1: 0.1, 2: 0.2})
        if full_in < 3 and kept != "history":
            with pytest.raises(FileWriteError, match="No space left"):
                strategy.start(grid, arrays, 3, evaluate_fn=disk)
            assert len(strategy.reports) == full_in
            return
        result = strategy.start(grid, arrays, 3, evaluate_fn=disk)
        assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
        assert "No space left" in caplog.text

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

    def test_privacy_is_given_in_one_way(self) -> None:
        """As a rule it would leave on what looks at each client, and count no restart."""
        privacy = Privacy(1.0, 1.0)
        rule = Private(fedhaw.FedAvg(), privacy)
        several: list[dict[str, Any]] = [{}, {"clip": 1.0}, {"privacy": privacy}]
        for settings in several:
            for own in (rule, Around(rule), Around(Around(rule))):
                with pytest.raises(InvalidSetting, match="within as rule=, and its privacy as"):
                    RuleStrategy(own, **settings)


@dataclass(frozen=True)
class Around:
    """A rule of a user's own around another one."""

    within: Any

    def init(self) -> Any:
        return self.within.init()

    def aggregate(self, state: Any, current: Round) -> Any:
        return self.within.aggregate(state, current)

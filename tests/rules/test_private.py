"""Differential privacy: the sum is clipped and noised, and epsilon is what it is said to be."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedhaw
from fedhaw.checkpoints import CheckpointError
from fedhaw.rules import (
    Clipped,
    FedAvg,
    FedAvgM,
    FedHAW,
    FedHAWAuto,
    InvalidClientModel,
    InvalidRule,
    Krum,
    Median,
    Round,
    load_state,
    save_state,
)
from fedhaw.rules.private import EVERYONE, Privacy, Private, PrivateState, does_with_the_sum
from fedhaw.rules.registry import RULES

pytest.importorskip("dp_accounting", reason='needs dp-accounting: pip install "fedhaw[privacy]"')

P = 20_000


def round_of(lengths: list[float], w: NDArray[np.float32] | None = None) -> Round:
    """A round whose updates have these lengths and fixed random directions."""
    random = np.random.default_rng(1)
    w = np.zeros(P, np.float32) if w is None else w
    directions = random.normal(size=(len(lengths), P))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    W = (w + directions * np.array(lengths)[:, None]).astype(np.float32)
    return Round(w, W, np.arange(1, len(lengths) + 1))


def test_every_update_is_cut_to_the_clip_and_all_clients_count_alike() -> None:
    almost_silent = Privacy(noise_multiplier=1e-9, clip=1.0)
    rule = Private(FedAvg(), almost_silent)
    current = round_of([0.5, 1.0, 100.0])
    model, _ = rule.aggregate(rule.init(), current)
    directions = current.client_models / np.linalg.norm(
        current.client_models, axis=1, keepdims=True
    )
    expected = (0.5 * directions[0] + directions[1] + directions[2]) / 3
    np.testing.assert_allclose(model, expected, atol=1e-6)


def test_the_noise_is_as_strong_as_the_clip_says_however_long_the_updates_are() -> None:
    rule = Private(FedAvg(), Privacy(noise_multiplier=2.0, clip=0.25))
    for lengths in ([1e-9] * 4, [1e-9, 1e-9, 1e-9, 1e5]):
        model, _ = rule.aggregate(rule.init(), round_of(lengths))
        # 2.0 * 0.25 / 4 a number; the sum itself is at most 0.25 / 4 long.
        assert np.std(model) == pytest.approx(0.125, rel=0.03)


def test_one_client_moves_the_sum_by_no_more_than_the_clip() -> None:
    rule = Private(FedAvg(), Privacy(noise_multiplier=1e-9, clip=1.0))
    random = np.random.default_rng(3)
    for _ in range(20):
        lengths = list(10 ** random.uniform(-3, 6, size=5))
        current = round_of(lengths)
        without = Round(
            current.global_model,
            current.client_models,
            current.num_examples,
            received=np.array([True, True, False, True, True]),
        )
        one, _ = rule.aggregate(rule.init(), current)
        other, _ = rule.aggregate(rule.init(), without)
        assert np.linalg.norm(5.0 * (one.astype(float) - other)) <= 1 + 1e-4


def test_a_lost_client_is_an_update_of_zero() -> None:
    rule = Private(FedAvg(), Privacy(noise_multiplier=1e-9, clip=1.0))
    full = round_of([1.0, 1.0])
    half = Round(full.global_model, full.client_models, [1, 1], received=np.array([True, False]))
    model, state = rule.aggregate(rule.init(), half)
    np.testing.assert_allclose(model, full.client_models[0] / 2, atol=1e-6)
    assert state.epsilon > 0


def test_a_round_in_which_nothing_arrived_costs_nothing() -> None:
    rule = Private(FedAvg(), Privacy(noise_multiplier=1.0, clip=1.0))
    before = rule.init()
    gone = Round(np.zeros(5, np.float32), np.zeros((2, 5), np.float32), [1, 1], [False, False])
    model, after = rule.aggregate(before, gone)
    assert after is before
    assert not model.any()


@pytest.mark.parametrize(
    ("z", "rounds", "delta", "epsilon"),
    [
        # Values of dp-accounting's own PLD accountant, which knows nothing of the closed form.
        (1.0, 1, 1e-5, 4.3771781),
        (1.0, 100, 1e-6, 96.717272),
        (5.0, 1000, 1e-6, 49.319277),
    ],
)
def test_epsilon_is_the_accountants(z: float, rounds: int, delta: float, epsilon: float) -> None:
    privacy = Privacy(noise_multiplier=z, clip=1.0, delta=delta)
    assert privacy.epsilon(rounds) == pytest.approx(epsilon, rel=1e-6)


def test_epsilon_obeys_its_definition() -> None:
    """delta = Phi(1/2s - eps s) - e^eps Phi(-1/2s - eps s) for noise s (Balle and Wang, 2018)."""

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    for z, rounds in ((2.0, 1), (4.0, 9), (30.0, 400)):
        epsilon, s = Privacy(z, 1.0, delta=1e-4).epsilon(rounds), z / math.sqrt(rounds)
        delta = phi(0.5 / s - epsilon * s) - math.exp(epsilon) * phi(-0.5 / s - epsilon * s)
        assert delta == pytest.approx(1e-4, rel=1e-3)


def test_epsilon_counts_the_client_that_was_asked_most_often() -> None:
    privacy = Privacy(noise_multiplier=3.0, clip=1.0)
    rule = Private(FedAvg(), privacy)
    state = rule.init()
    for cohort in (("a", "b"), ("b", "c"), ("c", "d")):
        W = np.zeros((2, 5), np.float32)
        _, state = rule.aggregate(state, Round(W[0], W, [1, 1], clients=cohort))
    assert state.asked == {"a": 1, "b": 2, "c": 2, "d": 1}
    assert state.metrics["epsilon"] == privacy.epsilon(2)


def test_the_clip_finds_the_quantile() -> None:
    privacy = Privacy(noise_multiplier=1.0, clip=30.0, quantile=0.5)
    rule = Private(FedAvg(), privacy)
    state = rule.init()
    lengths = list(np.linspace(0.5, 1.5, 100))
    current = round_of(lengths)
    for _ in range(80):
        _, state = rule.aggregate(state, current)
    assert state.clip == pytest.approx(1.0, rel=0.15)


def test_the_clip_finds_the_quantile_of_those_who_arrive() -> None:
    """It grew without end where more were lost than the quantile leaves out."""
    rule = Private(FedAvg(), Privacy(noise_multiplier=1.0, clip=1.0, quantile=0.8))
    state, current = rule.init(), round_of(list(np.linspace(0.5, 1.5, 100)))
    arrived = replace(current, received=np.arange(100) % 5 < 3)
    for _ in range(80):
        _, state = rule.aggregate(state, arrived)
    assert state.clip == pytest.approx(1.3, rel=0.15)


def test_a_round_that_is_held_again_with_others_has_other_noise() -> None:
    """With the same noise, the two models' difference would be the update of who is missing."""
    rule, full = Private(FedAvg(), Privacy(1.0, 1.0)), round_of([1.0, 1.0, 1.0])
    fewer = replace(full, received=np.array([True, True, False]))
    state = rule.init()
    again, one, other = (rule.aggregate(state, r)[0] for r in (full, full, fewer))
    assert np.array_equal(again, one)
    # Two noises of deviation 1 / 3 a number, and not an update of length 1 / 3.
    assert np.std(one - other) == pytest.approx(math.sqrt(2) / 3, rel=0.03)


def test_noise_of_another_strength_is_other_noise() -> None:
    """With the same noise, four times one model without the other would be the sum itself."""
    weak, strong = (Private(FedAvg(), Privacy(z, 1.0)) for z in (1.0, 4.0))
    state, current = weak.init(), round_of([0.5, 0.5, 0.5])
    one, other = (rule.aggregate(state, current)[0] for rule in (weak, strong))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


def test_the_noise_knows_who_was_lost_and_who_had_nothing_to_say() -> None:
    """With the quantile, how many arrived scales the noise; the sum is the same for both."""
    rule = Private(FedAvg(), Privacy(1.0, 1.0, quantile=0.5))
    state, silent = rule.init(), round_of([0.5, 0.5, 0.0])
    lost = replace(silent, received=np.array([True, True, False]))
    one, other = (rule.aggregate(state, current)[0] for current in (silent, lost))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


@pytest.mark.parametrize("longest", [0.5, 2.0])
def test_one_client_moves_the_count_by_no_more_than_a_half(longest: float) -> None:
    """The count of who is longer than the clip, between a client's update and none, of length 0."""
    rule, n = Private(FedAvg(), Privacy(1e-9, 1.0, quantile=0.5)), 4
    # The mean under many secrets, because the count has noise of n / 20 at least.
    states = [replace(rule.init(), secret=f"{k:064x}") for k in range(400)]
    counts = []
    for length in (longest, 0.0):
        current = round_of([0.5, 2.0, 0.5, length])
        clips = [rule.aggregate(state, current)[1].clip for state in states]
        counts.append(-n * np.mean(np.log(clips)) / 0.2)  # C exp(-0.2 (b - quantile)) for C = 1
    assert abs(counts[0] - counts[1]) == pytest.approx(0.5, abs=0.06)


def test_rounds_that_are_held_again_cost_their_epsilon() -> None:
    rule = Private(FedAvg(), Privacy(1.0, 1.0))
    _, state = rule.aggregate(rule.init(), round_of([1.0, 1.0]))
    later = rule.going_on(state, 3)
    assert later.metrics["epsilon"] == rule.privacy.epsilon(4)
    assert later.secret == state.secret
    # Who was asked in the lost rounds is not known, so it may be one who is first asked now.
    assert rule.going_on(rule.init(), 3).epsilon == rule.privacy.epsilon(3)
    for _ in range(2):
        _, later = rule.aggregate(later, replace(round_of([1.0, 1.0]), clients=("c", "d")))
    assert later.epsilon == rule.privacy.epsilon(5)
    assert rule.going_on(rule.init(), 0).epsilon == 0


def test_counting_for_the_quantile_is_paid_for() -> None:
    """With the quantile the sum gets more noise, so that both together cost what z says."""
    plain, counting = (
        Private(FedAvg(), Privacy(1.0, 1.0, quantile=quantile)) for quantile in (None, 0.5)
    )
    lengths = [1e-9] * 10
    noise = [
        np.std(rule.aggregate(rule.init(), round_of(lengths))[0]) for rule in (plain, counting)
    ]
    sigma_b = math.sqrt(5)
    assert noise[1] / noise[0] == pytest.approx((1 - (2 * sigma_b) ** -2) ** -0.5, rel=0.02)


def test_the_rule_within_sees_one_client_and_learns_from_it() -> None:
    rule = Private(FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-2), Privacy(0.01, 1.0))
    state, current = rule.init(), round_of([1.0, 2.0, 3.0])
    for _ in range(3):
        model, state = rule.aggregate(state, current)
        current = round_of([1.0, 2.0, 3.0], model)
    assert state.clients == (EVERYONE,)
    assert state.metrics["gamma"] != 0
    assert list(state.weights) == [1.0]


def test_noise_differs_from_run_to_run_and_from_round_to_round() -> None:
    rule = Private(FedAvg(), Privacy(1.0, 1.0))
    first, second, current = rule.init(), rule.init(), round_of([1.0, 1.0])
    a, first = rule.aggregate(first, current)
    b, second = rule.aggregate(second, current)
    c, _ = rule.aggregate(first, current)
    assert not np.allclose(a, b)
    assert not np.allclose(a, c)


def test_a_stored_state_goes_on_with_the_same_bits(tmp_path: pytest.TempPathFactory) -> None:
    rule, current = Private(FedHAWAuto(), Privacy(1.0, 1.0, quantile=0.5)), round_of([1.0, 2.0])
    _, state = rule.aggregate(rule.init(), current)
    file = f"{tmp_path}/state.safetensors"
    save_state(state, file)
    restored = load_state(rule, file)
    assert isinstance(restored, PrivateState)
    one, _ = rule.aggregate(state, current)
    other, _ = rule.aggregate(restored, current)
    assert np.array_equal(one, other)
    with pytest.raises(CheckpointError):
        load_state(FedAvg(), file)


def test_a_secret_is_not_in_what_is_printed_or_described() -> None:
    rule = Private(FedAvg(), Privacy(1.0, 1.0))
    state = rule.init()
    assert state.secret not in repr(state)
    assert state.secret not in repr(rule)


def test_a_model_that_is_not_finite_is_named() -> None:
    rule = Private(FedAvg(), Privacy(1.0, 1.0))
    current = round_of([1.0, 1.0])
    current.client_models[1, 3] = np.nan
    with pytest.raises(InvalidClientModel, match="client 1"):
        rule.aggregate(rule.init(), current)


def test_torch_and_numpy_agree() -> None:
    torch = pytest.importorskip("torch")
    # Their sums differ in the last bits, and so does all noise.
    rule, current = Private(FedAvgM(), Privacy(1e-9, 1.0)), round_of([1.0, 2.0, 0.1])
    state = rule.init()
    expected, _ = rule.aggregate(state, current)
    w, W = (torch.from_numpy(np.asarray(a)) for a in (current.global_model, current.client_models))
    got, _ = rule.aggregate(state, Round(w, W, current.num_examples))
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-6)


def test_noise_on_torch_is_as_strong() -> None:
    torch = pytest.importorskip("torch")
    rule, current = Private(FedAvg(), Privacy(2.0, 0.25)), round_of([1e-9] * 4)
    w, W = (torch.from_numpy(np.asarray(a)) for a in (current.global_model, current.client_models))
    model, _ = rule.aggregate(rule.init(), Round(w, W, current.num_examples))
    assert np.std(model.numpy()) == pytest.approx(0.125, rel=0.03)  # as on NumPy, above


@pytest.mark.parametrize("rule", [Median(), Krum(), fedhaw.FedAdp()])
def test_a_rule_that_looks_at_each_client_is_refused(rule: fedhaw.Rule[Any]) -> None:
    with pytest.raises(InvalidRule, match="looks at each client's update"):
        Private(rule, Privacy(1.0, 1.0))


def test_nothing_shortens_updates_before_privacy_does() -> None:
    """Around it, the median length of all would say how long one may be, and nobody would know."""
    with pytest.raises(InvalidRule, match="leave Clipped out"):
        Clipped(Private(FedAvg(), Privacy(1.0, 1.0)))


def test_rules_that_need_only_the_sum_do_not_change_when_clients_are_added_up() -> None:
    """What says ``needs = "sum"`` gives the same model for all clients and for their one mean."""
    random = np.random.default_rng(5)
    said = [entry.cls for entry in RULES.values() if getattr(entry.cls, "needs", "") == "sum"]
    assert len(said) >= 5
    for cls in said:
        rule = cls()
        many, one = rule.init(), rule.init()
        w = random.normal(size=50)
        for _ in range(4):
            W = w + random.normal(size=(6, 50))
            mean = W.mean(axis=0)
            model, many = rule.aggregate(many, Round(w, W, np.ones(6)))
            alone, one = rule.aggregate(one, Round(w, mean[None, :], [1.0]))
            np.testing.assert_allclose(model, alone, atol=1e-9, err_msg=cls.__name__)
            w = np.asarray(model)


def test_which_rules_do_with_a_sum() -> None:
    able = {name for name, entry in RULES.items() if does_with_the_sum(entry.cls)}
    assert able == {
        "fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "fedhyper", "fedhaw", "fedhaw-auto"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value"),
    [("noise_multiplier", 0), ("clip", -1), ("quantile", 1), ("delta", 0), ("delta", 1)],
)
def test_a_wrong_value_gets_a_sentence(option: str, value: float) -> None:
    given: dict[str, float] = {"noise_multiplier": 1.0, "clip": 1.0, option: value}
    with pytest.raises(InvalidRule, match=option):
        Privacy(**given)


def test_the_page_on_privacy_tells_true_figures() -> None:
    page = (Path(__file__).parents[2] / "docs/privacy.md").read_text()
    for line in re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M):
        z, *said = map(float, line)
        told = [Privacy(z, 1.0, delta=1e-6).epsilon(rounds) for rounds in (1, 10, 100)]
        assert said == pytest.approx(told, rel=0.01)

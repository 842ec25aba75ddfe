"""FedHAW-auto against its equations, and the invariances that make it free of tuning."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedhaw
from fedhaw.rules import Round
from fedhaw.rules.auto_coefficients import (
    GAIN,
    LEAK,
    LEAST_STEP,
    MEMORY,
    MOMENTUM_LIMIT,
    OFFSET,
    RADIUS,
    RATE,
    RETURN,
    SCALING_LIMIT,
    THETA_LIMITS,
)
from fedhaw.rules.auto_pace import LATELY, PATIENCE, SHORT, Pace
from fedhaw.rules.auto_replay import REPLAY
from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.trust import ROUNDS

K, P = 4, 23
EXAMPLES = np.array([10.0, 20.0, 5.0, 40.0])
RULE = fedhaw.FedHAWAuto()


def cosine(a: Any, b: Any) -> float:
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / lengths) if lengths else 0.0


def updates(seed: int, rounds: int, size: float = 0.1, common: float = 0.0) -> Any:
    """(rounds, K, P) updates; `common` is how much of each all have in common."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((rounds, K, P))
    return size * (common * random.standard_normal(P) + noise)


def losses(seed: int, rounds: int) -> Any:
    received = np.random.default_rng([seed, 1]).random((rounds, K)) < 0.6
    received[:, 0] |= ~received.any(axis=1)
    return received


def lates(seed: int, received: Any, share: float) -> Any:
    """Which uploads came late: of what was received in a round, never all."""
    late = received & (np.random.default_rng([seed, 3]).random(received.shape) < share)
    late[np.arange(len(late)), received.argmax(axis=1)] = False
    return late


def shortened(update: Any, lengths: list[float]) -> float:
    """What is replayed of an update of a client whose own have been so long."""
    if not lengths or not update.any():
        return 1.0
    usual = 0.0
    for t, length in enumerate(lengths, 1):
        usual += max(0.1, 1 / t) * (length - usual)
    return min(1.0, usual / float(np.linalg.norm(update)))


def play(
    w: Any, steps: Any, received: Any, scale: float = 1.0, unit: float = 1.0, late: Any = None
) -> list[tuple[Any, FedHAWAutoState]]:
    """The rule on clients that move by fixed vectors: `unit` rescales all, `scale` the updates."""
    state, w, path = RULE.init(), unit * w, []
    late = np.zeros_like(received) if late is None else late
    for moved, arrived, stale in zip(steps, received, late, strict=True):
        W = np.where(arrived[:, None], w + scale * unit * moved, w)
        w, state = RULE.aggregate(state, Round(w, W, EXAMPLES, arrived, late=stale))
        path.append((w, state))
    return path


def haste(squares: list[float]) -> float:
    """(f^2 / q^2) t / PATIENCE of the squared lengths of all updates so far."""
    recent = squares[0]
    for square in squares[1:]:
        recent = LATELY * recent + (1 - LATELY) * square
    return float(recent / np.mean(squares) * len(squares) / PATIENCE)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.001, 0.03, 0.1, 2.0]),
    common=st.sampled_from([0.0, 1.0, 10.0]),
    tardy=st.sampled_from([0.0, 0.5]),
)
def test_equals_a_slow_transcription(seed: int, size: float, common: float, tardy: float) -> None:
    w = np.random.default_rng([seed, 2]).standard_normal(P)
    steps, received = updates(seed, 8, size, common), losses(seed, 8)
    late = lates(seed, received, tardy)
    p = EXAMPLES / EXAMPLES.sum()
    gamma, scaling, back, returned = 0.0, 0.0, 0.0, 0.0
    theta, beta, mean, step = 0.0, 0.0, 0.0, 1.0
    squares: list[float] = []
    last, v, start = np.zeros((K, P)), None, 0.0
    own: list[list[float]] = [[] for _ in range(K)]
    mine = w
    for (model, state), moved, arrived, stale in zip(
        play(w, steps, received, late=late), steps, received, late, strict=True
    ):
        fresh = sum(p[k] * moved[k] for k in range(K) if arrived[k] and not stale[k])
        for k in range(K):
            last[k] = moved[k] if arrived[k] else REPLAY * last[k] * shortened(last[k], own[k])
        if np.count_nonzero(arrived & ~stale) >= 3:
            for k in np.flatnonzero(arrived & ~stale).tolist():
                own[k].append(float(np.linalg.norm(moved[k])))
        delta = p @ last
        squares.append(float(fresh @ fresh))
        if v is None:
            start, v = float(np.linalg.norm(mine)), delta
            start = start if start >= float(np.linalg.norm(delta)) else 0.0
        else:
            share, agreement = float(p[arrived & ~stale].sum()), cosine(fresh, v)
            timely = share / float(p[arrived].sum())
            theta = float(np.clip(theta + RATE * (agreement + OFFSET), *THETA_LIMITS))
            mean = MEMORY * mean + (1 - MEMORY) * agreement
            power = (1 - float(np.clip(2 * mean, 0, 1))) / 2
            aim = share**power * timely / (1 + np.exp(-theta))
            reach = RADIUS * (start or float(np.linalg.norm(mine)))
            far = (1 - abs(agreement)) * float(np.linalg.norm(fresh)) / (share * reach)
            hasty = (1 - abs(agreement)) * (1 - MOMENTUM_LIMIT) * haste(squares)
            beta = max(0.0, min(aim, 1 - far, 1 - hasty))
            step = max(LEAST_STEP, 1 / max(1.0, hasty))
            v = beta * v + delta
            growth = cosine(delta, mine)
            total = scaling + LEAK * gamma + GAIN * max(0.0, 1 - 2 * abs(growth)) * growth
            gamma = float(np.clip(total, -SCALING_LIMIT, SCALING_LIMIT)) - scaling
            calm = max(0.0, 1 - haste(squares) * PATIENCE / len(squares) / SHORT**2)
            back = calm * (scaling - returned) / RETURN
            scaling, returned = scaling + gamma, returned + back
        mine = np.exp(gamma - back) * (mine + step * v)
        assert state.gamma == pytest.approx(gamma, rel=1e-9, abs=1e-12)
        assert state.momentum == pytest.approx(beta, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(model, mine, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), exponent=st.integers(-12, 12))
def test_another_unit_of_the_model_changes_no_coefficient(seed: int, exponent: int) -> None:
    """Powers of two: not even rounding differs."""
    w = np.random.default_rng([seed, 2]).standard_normal(P)
    steps, received, unit = updates(seed, 6), losses(seed, 6), 2.0**exponent
    for (model, state), (other, rescaled) in zip(
        play(w, steps, received), play(w, steps, received, unit=unit), strict=True
    ):
        assert rescaled.gamma == pytest.approx(state.gamma, rel=1e-12, abs=1e-15)
        assert rescaled.momentum == pytest.approx(state.momentum, rel=1e-12, abs=1e-15)
        np.testing.assert_allclose(other, unit * model, rtol=1e-12)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.floats(1e-3, 10))
def test_a_multiple_of_eta_or_of_the_loss_changes_no_first_step(seed: int, factor: float) -> None:
    """Both multiply the updates. From the same model, every cosine and so every step is the same,
    as long as it is within the radius; after it the models differ, as they must."""
    w = np.random.default_rng([seed, 2]).standard_normal(P)
    steps, received = updates(seed, 2, 1e-4), np.ones((2, K), bool)
    (_, first), _ = play(w, steps, received)
    (_, scaled), _ = play(w, steps, received, scale=factor)
    _, after = RULE.aggregate(first, Round(w, w + steps[1], EXAMPLES))
    _, after_scaled = RULE.aggregate(scaled, Round(w, w + factor * steps[1], EXAMPLES))
    # W - w of short updates has lost digits to the length of w.
    assert after_scaled.gamma == pytest.approx(after.gamma, rel=1e-5, abs=1e-12)
    assert after_scaled.theta == pytest.approx(after.theta, rel=1e-5, abs=1e-9)


def test_the_first_round_is_fedavg() -> None:
    w, (moved,) = np.linspace(-1, 1, P), updates(0, 1)
    model, state = RULE.aggregate(RULE.init(), Round(w, w + moved, EXAMPLES))
    np.testing.assert_allclose(model, w + EXAMPLES / EXAMPLES.sum() @ moved)
    np.testing.assert_allclose(state.weights, EXAMPLES / EXAMPLES.sum())


def test_no_update_ends_the_momentum_and_lets_gamma_fade() -> None:
    w = np.linspace(-1, 1, P)
    *_, (_, before) = play(w, updates(0, 4, 0.01, 1.0), np.ones((4, K), bool))
    model, after = RULE.aggregate(before, Round(w, np.tile(w, (K, 1)), EXAMPLES))
    assert (after.momentum, after.theta) == (0.0, before.theta)
    assert after.gamma == pytest.approx(LEAK * before.gamma)
    back = after.given_back - before.given_back
    np.testing.assert_allclose(model, np.exp(after.gamma - back) * w)


def aside(w: Any, cosine: float, size: float) -> Any:
    """What clients send that move a model of ones by `size` times its length, always at one angle
    to it."""
    across = np.append(np.tile([1.0, -1.0], P // 2), 0.0)
    across *= np.linalg.norm(w) / np.linalg.norm(across)
    return w + size * (cosine * w + np.sqrt(1 - cosine**2) * across)


def test_coefficients_stay_in_bounds_for_the_worst_clients() -> None:
    """Clients that always stretch the model: gamma and beta meet their limits, not infinity."""
    w, state, gammas = np.ones(P), RULE.init(), []
    for _ in range(200):
        W = np.tile(aside(w, 0.25, 0.001), (K, 1))
        _, state = RULE.aggregate(state, Round(w, W, EXAMPLES))
        gammas.append(state.gamma)
    most = GAIN / 8 / (1 - LEAK)
    assert 0.9 * most < max(gammas) <= most
    assert state.momentum == pytest.approx(MOMENTUM_LIMIT)
    assert state.scaling == pytest.approx(SCALING_LIMIT)
    assert state.gamma == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("shortening", "stretched"), [(1.0, 2.0), (0.95, 1.0)])
def test_what_gamma_lent_is_given_back_as_updates_shorten(
    shortening: float, stretched: float
) -> None:
    """Clients that always stretch the model: where they find less and less to do, it ends as long
    as without gamma; where they do not, it stays twice as long."""

    def length(rule: fedhaw.FedHAWAuto) -> float:
        w, state = np.ones(P), rule.init()
        for t in range(1500):
            W = np.tile(aside(w, 0.25, 1e-4 * max(shortening**t, 1e-6)), (K, 1))
            w, state = rule.aggregate(state, Round(w, W, EXAMPLES))
        return float(np.linalg.norm(w))

    ratio = length(RULE) / length(replace(RULE, without="gamma"))
    assert ratio == pytest.approx(stretched, rel=0.02)


def test_a_model_that_grows_from_zero_gets_momentum() -> None:
    """Its updates lie along the model, because the model is their sum."""
    w, state, moved = np.zeros(P), RULE.init(), np.linspace(0.5, 1.5, P)
    for _ in range(12):
        w, state = RULE.aggregate(state, Round(w, np.tile(w + moved, (K, 1)), EXAMPLES))
    assert state.momentum == pytest.approx(MOMENTUM_LIMIT)
    assert np.linalg.norm(w) > 30 * np.linalg.norm(moved)


def test_updates_that_turn_back_leave_half_the_momentum_which_shortens_them() -> None:
    w, state, moved = np.ones(P), RULE.init(), np.linspace(-1e-3, 1e-3, P)
    for t in range(40):
        W = np.tile(w + (moved if t % 2 else -moved), (K, 1))
        _, state = RULE.aggregate(state, Round(w, W, EXAMPLES))
    assert state.momentum == 0.5
    left = np.linalg.norm(np.asarray(state.velocity))
    assert float(left) == pytest.approx(float(np.linalg.norm(moved)) / 1.5)


def test_clients_that_overshoot_end_nearer_the_optimum_than_with_fedavg() -> None:
    """Steps of 1.9 times the curvature's inverse: clients jump to the other side every round."""

    def distance(rule: Any) -> float:
        random, w, state, squares = np.random.default_rng(0), np.ones(P), rule.init(), []
        for t in range(200):
            moved = -1.9 * (w - 1) + 0.01 * random.standard_normal((K, P))
            w, state = rule.aggregate(state, Round(w, w + moved, EXAMPLES))
            squares.append(float(np.square(w - 1).sum()) if t >= 100 else 0.0)
        return sum(squares)

    assert distance(replace(RULE, without="gamma")) < 0.5 * distance(fedhaw.FedAvg())


@pytest.mark.parametrize("shortening", [1.0, 0.98])
def test_momentum_ends_where_updates_do_not_shorten(shortening: float) -> None:
    """Noise as long in round 300 as in the first leaves what its haste allows; noise that fades
    leaves all."""
    w, size = np.ones(P), 1e-3 * shortening ** np.arange(300)
    steps = size[:, None, None] * updates(0, 300, size=1.0)
    path = play(w, steps, np.ones((300, K), bool))
    momenta = np.array([state.momentum for _, state in path[-40:]])
    if shortening < 1:
        assert np.median(momenta) > 0.8
    else:
        assert np.median(momenta) == pytest.approx(1 - 0.1 * 280 / PATIENCE, abs=0.12)


@pytest.mark.parametrize(("rounds", "expected"), [(400, 1.0), (1000, 0.5), (2800, LEAST_STEP)])
def test_steps_get_shorter_than_fedavgs_to_a_quarter(rounds: int, expected: float) -> None:
    """10 / h = 10 * 50 / t, where updates are as long in every round and point nowhere."""
    w, steps = np.ones(P), 1e-3 * updates(0, rounds, size=1.0)
    path = play(w, steps, np.ones((rounds, K), bool))
    models, states = zip(*path, strict=True)
    scales = np.diff([state.scaling - state.given_back for state in states[-41:]])
    ratios = [
        np.linalg.norm(after / np.exp(scale) - before) / np.linalg.norm(state.velocity)
        for before, after, scale, state in zip(
            models[-41:-1], models[-40:], scales, states[-40:], strict=True
        )
    ]
    assert np.median(ratios) == pytest.approx(expected, abs=0.1)
    assert min(ratios) >= LEAST_STEP - 1e-9


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=60))
def test_pace_is_what_its_equation_says(squares: list[float]) -> None:
    pace = Pace()
    for square in squares:
        pace = pace.after(square)
    assert pace.haste == pytest.approx(haste(squares))
    assert Pace().haste == 0.0


def test_losses_cost_no_momentum_where_updates_agree() -> None:
    """A long way to go: what is replayed points there, too."""
    w, received = np.ones(P), losses(0, 40)
    (_, apart), (_, agreed) = (
        play(w, updates(0, 40, 1e-4, common), received)[-1] for common in (0.0, 10.0)
    )
    assert apart.momentum < 0.85 * MOMENTUM_LIMIT
    assert agreed.momentum == pytest.approx(MOMENTUM_LIMIT, rel=0.01)


def test_clients_that_move_far_and_apart_get_no_momentum() -> None:
    w = np.ones(P)
    *_, (_, state) = play(w, updates(0, 30, size=1.0), np.ones((30, K), bool))
    assert state.momentum == 0.0


@pytest.mark.parametrize("grown", [0.0, 1.0])
def test_a_model_that_grows_from_zero_gets_its_momentum_as_it_grows(grown: float) -> None:
    """Noise as long as the step would leave none at the first update's length."""
    random, w, state = np.random.default_rng(0), np.full(P, grown), RULE.init()
    for _ in range(60):
        moved = 0.5 + 0.5 * random.standard_normal(P)
        w, state = RULE.aggregate(state, Round(w, np.tile(w + moved, (K, 1)), EXAMPLES))
    assert state.momentum > 0.5 if grown == 0.0 else state.momentum == 0.0


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), K=st.integers(2, 30))
def test_what_rounding_leaves_of_equal_models_is_no_update(seed: int, K: int) -> None:
    random = np.random.default_rng(seed)
    w, state = random.standard_normal(400).astype(np.float32), RULE.init()
    examples, length = random.integers(1, 100, K), np.linalg.norm(w)
    for _ in range(10):
        w, state = RULE.aggregate(state, Round(w, np.tile(w, (K, 1)), examples))
    assert (state.momentum, state.gamma) == (0.0, 0.0)
    assert np.linalg.norm(w) == pytest.approx(length, rel=1e-5)


def test_half_precision_is_measured_in_single() -> None:
    w, state = np.full(20_000, 0.4, np.float16), RULE.init()
    for _ in range(20):
        w, state = RULE.aggregate(state, Round(w, np.tile(w * np.float16(1.02), (2, 1)), [1, 1]))
    assert state.note is None
    assert state.scaling <= SCALING_LIMIT


def test_a_client_that_never_returns_fades_out() -> None:
    w, moved = np.zeros(P), np.ones(P)
    received = np.ones(K, bool)
    _, state = RULE.aggregate(RULE.init(), Round(w, np.tile(w + moved, (K, 1)), EXAMPLES))
    received[3] = False
    for absence in range(1, 6):
        W = np.tile(w, (K, 1))
        _, state = RULE.aggregate(state, Round(w, W, EXAMPLES, received))
        assert state.absent == (3,)
        assert state.replayed is not None
        np.testing.assert_allclose(state.replayed[0], REPLAY**absence * moved)
    # Back again: nothing of it is replayed.
    _, state = RULE.aggregate(state, Round(w, np.tile(w, (K, 1)), EXAMPLES))
    assert state.absent == ()


def known_for(rounds: int, last: float) -> tuple[Any, FedHAWAutoState]:
    """A model and the state after rounds of updates of length 1, the last of client 2 longer."""
    w, state, random = np.ones(P), RULE.init(), np.random.default_rng(0)
    for t in range(rounds):
        moved = random.standard_normal((K, P))
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        moved[2] *= last if t == rounds - 1 else 1.0
        w, state = RULE.aggregate(state, Round(w, w + moved, EXAMPLES))
    return w, state


def without_client_2(w: Any, state: FedHAWAutoState, refused: bool) -> FedHAWAutoState:
    gone = np.arange(K) == 2
    current = Round(w, np.tile(w, (K, 1)), EXAMPLES, ~gone, refused=gone & refused)
    return RULE.aggregate(state, current)[1]


def test_nothing_stands_in_for_a_refused_upload_of_a_client_that_is_hardly_known() -> None:
    w, state = known_for(ROUNDS - 1, last=1.0)
    assert without_client_2(w, state, refused=False).absent == (2,)
    assert without_client_2(w, state, refused=True).absent == ()


@pytest.mark.parametrize(("rounds", "left"), [(ROUNDS - 1, True), (ROUNDS, False)])
def test_momentum_starts_afresh_where_a_known_client_diverges(rounds: int, left: bool) -> None:
    """And a stranger's lie does not slow the server down."""
    w, state = known_for(rounds, last=1.0)
    lost, refused = ({"refused": np.arange(K) == 2 if no else None} for no in (False, True))
    moved = np.random.default_rng(1).standard_normal((K, P)) / 10
    W = np.where((np.arange(K) == 2)[:, None], w, w + moved)
    momenta = [
        RULE.aggregate(state, Round(w, W, EXAMPLES, np.arange(K) != 2, **no))[1].momentum
        for no in (lost, refused)
    ]
    assert momenta[0] > 0
    assert (momenta[1] > 0) == left


@pytest.mark.parametrize(("refused", "usual"), [(False, 1.4), (True, 1.0)])
def test_what_is_replayed_counts_as_no_longer_than_is_usual(refused: bool, usual: float) -> None:
    """Of a client that was lost for itself, of one that was refused among all."""
    w, state = known_for(ROUNDS, last=5.0)
    assert state.note is None  # it was long, but not shortened
    after = without_client_2(w, state, refused)
    assert after.absent == (2,)
    assert after.replayed is not None
    assert np.linalg.norm(after.replayed[0]) == pytest.approx(REPLAY * usual)


def test_only_the_last_cohort_is_remembered() -> None:
    """A client that joins, or comes back after a pause, begins without a past."""
    w = np.zeros(P)
    names = ("a", "b", "c", "d")
    first = Round(w, np.tile(w + 1, (K, 1)), EXAMPLES, clients=names)
    _, state = RULE.aggregate(RULE.init(), first)
    away = Round(w, np.tile(w + 1, (2, 1)), [1, 1], clients=("c", "new"))
    _, state = RULE.aggregate(state, away)
    lost = replace(first, received=np.array([False, True, False, True]))
    _, state = RULE.aggregate(state, lost)
    assert state.absent == ("c",)

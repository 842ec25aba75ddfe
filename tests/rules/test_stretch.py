"""The guard of FedHAW: what gamma may do to a model's length, over rounds and over thousands."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhaw.rules import FedHAW, InvalidRound, Round
from fedhaw.rules.fedhaw import FedHAWState
from fedhaw.rules.stretch import trained_length

P = 50
Clients = Callable[[np.ndarray, int], np.ndarray]
"""w and the number of the round -> the average of what clients send back."""


def run(rule: FedHAW, clients: Clients, rounds: int) -> tuple[np.ndarray, list[FedHAWState]]:
    """(rounds,) the model's length after every round, from 1, and the states."""
    w, state, lengths, states = np.full(P, P**-0.5), rule.init(), [], []
    for t in range(rounds):
        w, state = rule.aggregate(state, Round(w, np.stack([clients(w, t)] * 3), [1, 1, 1]))
        lengths.append(float(np.linalg.norm(w)))
        states.append(state)
    return np.array(lengths), states


def notes(states: list[FedHAWState]) -> list[str]:
    return [state.note for state in states if state.note is not None]


def sideways(w: np.ndarray, t: int, size: float) -> np.ndarray:
    """A step across w, which makes the model longer by size^2 / 2 of its length."""
    step = np.random.default_rng(t).standard_normal(P)
    step -= (step @ w) / (w @ w) * w
    return np.asarray(size * np.linalg.norm(w) * step / np.linalg.norm(step))


def asking_for(growth: float, rounds: int, noise: float = 0.0) -> Clients:
    """Clients that make the model longer by `growth` for some rounds, and then train no more."""

    def clients(w: np.ndarray, t: int) -> np.ndarray:
        more = growth if 0 < t <= rounds else 0.0
        return w * (1 + more + noise * np.random.default_rng(t).standard_normal())

    return clients


@pytest.mark.parametrize("size", [0.05, 0.15, 0.3])
def test_weight_decay_at_work_is_no_accident(size: float) -> None:
    """Training makes the model longer for ever and gamma takes it back, round for round: the sum of
    gamma leaves any bound in 2,000 rounds, and nothing has happened to the model."""

    def clients(w: np.ndarray, t: int) -> np.ndarray:
        return np.asarray(w + sideways(w, t, size) - 0.05 * (np.linalg.norm(w) - 1.0) * w)

    lengths, states = run(FedHAW(eta=1.0, eta_gamma=1e-3, eta_lambda=0.0), clients, 2000)
    assert notes(states) == []
    assert sum(state.gamma for state in states) < -0.25 * 2000 * size**2
    assert 0.5 < lengths[-500:].min() < lengths[-500:].max() < 2


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
@pytest.mark.parametrize("limit", [3.0, 5.0])
def test_a_gamma_that_is_held_stops_at_the_limit(sign: int, noise: float, limit: float) -> None:
    """Clients ask for ten rounds, and are content; gamma would go on for ever."""
    clients = asking_for(sign * 0.01, 10, noise)
    if noise == 0:
        endless, _ = run(FedHAW(1.0, 0.1, 0.0, guard=None), clients, 1000)
        assert abs(np.log(endless[-1])) > 2 * np.log(limit)
    lengths, states = run(FedHAW(1.0, 0.1, 0.0, guard=limit), clients, 1000)
    assert max(abs(np.log(lengths))) < np.log(limit) + 0.2 + 1000 * noise / 2
    assert "training accounts for" in notes(states)[0]
    if noise == 0:
        assert states[-1].gamma == pytest.approx(0, abs=1e-12), "the model stays where it is"


def test_below_the_limit_the_guard_changes_no_bit() -> None:
    clients = asking_for(0.01, 10)
    guarded, with_guard = run(FedHAW(1.0, 0.1, 0.0), clients, 12)
    printed, without = run(FedHAW(1.0, 0.1, 0.0, guard=None), clients, 12)
    assert guarded.tobytes() == printed.tobytes()
    assert with_guard[-1].gamma == without[-1].gamma != 0


def test_a_model_that_grows_from_almost_nothing_is_left_alone() -> None:
    """What clients add is theirs: a thousandfold, with gamma's part below the limit."""

    def clients(w: np.ndarray, t: int) -> np.ndarray:
        return 1e-3 * w * (t + 2) / (t + 1) if t == 0 else w * (t + 2) / (t + 1)

    lengths, states = run(FedHAW(eta=1.0, eta_gamma=1e-2, eta_lambda=0.0), clients, 100)
    assert lengths[-1] > 20 * lengths[0]
    assert states[10].trained_length > 5 * lengths[0]
    assert notes(states) == []


def test_a_model_that_begins_at_zero() -> None:
    rule = FedHAW(eta=1.0, eta_gamma=1e-2, eta_lambda=0.0)
    w, state = np.zeros(P), rule.init()
    for t in range(30):
        w, state = rule.aggregate(state, Round(w, np.stack([w + (t > 3)] * 2), [1, 1]))
        assert np.isfinite(w).all()
    assert state.trained_length > 0


def test_without_a_guard_only_what_is_not_finite_is_refused() -> None:
    rule = FedHAW(eta=1.0, eta_gamma=40.0, eta_lambda=0.0, guard=None)
    lengths, states = run(rule, asking_for(0.01, 100), 2)
    assert states[-1].gamma == pytest.approx(0.4)
    longer, states = run(rule, asking_for(0.03, 100), 2)
    assert states[-1].gamma == pytest.approx(1.2), "as printed, though it triples the model"
    assert longer[-1] > 3 * lengths[0]
    with pytest.raises(InvalidRound, match="overflows"):
        run(rule, asking_for(0.03, 100), 100)


positive = st.floats(1e-6, 1e6)


@given(before=positive, w=positive, average=positive)
def test_the_trained_length_only_comes_nearer_to_the_model(
    before: float, w: float, average: float
) -> None:
    after = trained_length(before, w, average)
    assert min(before, average) <= after <= max(before, average)
    assert trained_length(w, w, average) == pytest.approx(average)
    assert trained_length(before, w, w) == before, "gamma does not move it"
    assert trained_length(0.0, w, average) == pytest.approx(average)
    assert trained_length(before, w, float("inf")) == before

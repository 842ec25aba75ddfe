"""Trust, on made-up rounds of clients that agree, differ or lie."""

from typing import Any

import numpy as np
import pytest

import fedhaw
from fedhaw.rules import Round
from fedhaw.rules.fedhaw_auto import FedHAWAutoState
from fedhaw.rules.trust import REMEMBERED, ROUNDS, Evidence

K, P = 10, 400
BAD = (0, 2, 5)
EXAMPLES = np.arange(1, K + 1) * 10.0


def gram(updates: Any) -> Any:
    return updates @ updates.T


def alike(random: Any, noise: float = 0.7) -> Any:
    """(K, P) updates along one direction, each with noise of its own."""
    common = random.standard_normal(P)
    return common + noise * random.standard_normal((K, P))


def different(random: Any, directions: Any) -> Any:
    """(K, P) updates of clients each of which has a direction of its own, more or less common."""
    common = random.standard_normal(P)
    lean = np.linspace(0.1, 1.0, K)[:, None]
    return lean * common + directions + 0.3 * random.standard_normal((K, P))


def lie(updates: Any, kind: str, random: Any, bad: tuple[int, ...] = BAD) -> Any:
    for k in bad:
        match kind:
            case "noise":
                updates[k] = random.standard_normal(P)
            case "reversed":
                updates[k] *= -1
            case "colluding":
                updates[k] = np.sin(np.arange(P)) + 0.1 * random.standard_normal(P)
    return updates


def play(
    rounds: int, kind: str = "", until: int = 10_000, lost: float = 0.0, unit: float = 1.0
) -> list[FedHAWAutoState]:
    """The states of a federation some of whose clients lie in its first `until` rounds."""
    rule, random = fedhaw.FedHAWAuto(), np.random.default_rng(3)
    w, state, states = unit * random.standard_normal(P), fedhaw.FedHAWAuto().init(), []
    for t in range(rounds):
        updates = lie(alike(random), kind if t < until else "", random)
        received = random.random(K) >= lost
        received[1] = True
        W = np.where(received[:, None], w + 0.01 * unit * updates, w)
        w, state = rule.aggregate(state, Round(w, W, EXAMPLES, received))
        states.append(state)
    return states


@pytest.mark.parametrize("kind", ["noise", "reversed", "colluding"])
@pytest.mark.parametrize("lost", [0.0, 0.4])
def test_bad_clients_lose_their_weight(kind: str, lost: float) -> None:
    states = play(50, kind, lost=lost)
    assert set(states[-1].distrusted) == set(BAD)
    weights = states[-1].weights
    assert np.all(weights[list(BAD)] == 0)
    good = [k for k in range(K) if k not in BAD]
    np.testing.assert_allclose(weights[good], EXAMPLES[good] / EXAMPLES[good].sum())
    assert states[-1].metrics["distrusted"] == len(BAD)


def test_one_sentence_names_whom_and_only_in_the_round_it_happened() -> None:
    notes = [state.note for state in play(20, "noise")]
    said = [note for note in notes if note is not None]
    assert said == ["the server stopped trusting client 0, 2, 5"]
    assert notes.index(said[0]) >= ROUNDS - 1


def test_a_client_that_mends_its_ways_is_trusted_again() -> None:
    states = play(90, "reversed", until=30)
    assert set(states[29].distrusted) == set(BAD)
    assert states[-1].distrusted == ()
    np.testing.assert_allclose(states[-1].weights, EXAMPLES / EXAMPLES.sum())
    assert any(state.note and "again" in state.note for state in states)


def test_nothing_of_a_client_that_is_not_trusted_is_kept_or_replayed() -> None:
    states = play(60, "reversed", lost=0.4)
    fell = next(t for t, state in enumerate(states) if set(state.distrusted) == set(BAD))
    assert states[fell].velocity is None
    for state in states[fell + 1 :]:
        assert not set(BAD) & set(state.absent)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0, 3.0, 30.0])
def test_honest_clients_that_agree_keep_their_weight(noise: float) -> None:
    random, evidence = np.random.default_rng(1), Evidence()
    for _ in range(60):
        evidence = evidence.after(range(K), gram(alike(random, noise)))
        assert evidence.outsiders() == ()


@pytest.mark.parametrize("seed", range(5))
def test_clients_that_are_only_different_keep_their_weight(seed: int) -> None:
    random, evidence = np.random.default_rng(seed), Evidence()
    directions = random.standard_normal((K, P))
    for _ in range(60):
        evidence = evidence.after(range(K), gram(different(random, directions)))
        assert evidence.outsiders() == ()


def test_no_unit_changes_a_verdict() -> None:
    for state, rescaled in zip(play(20, "noise"), play(20, "noise", unit=2.0**20), strict=True):
        assert state.distrusted == rescaled.distrusted


def test_half_of_the_clients_is_no_minority() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(30):
        updates = lie(alike(random, 0.2), "colluding", random, bad=(0, 1, 2, 3, 4))
        evidence = evidence.after(range(K), gram(updates))
        assert evidence.outsiders() == ()


def test_few_clients_are_never_judged() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(30):
        updates = lie(alike(random, 0.2)[:6], "reversed", random, bad=(0,))
        evidence = evidence.after(range(6), gram(updates))
        assert evidence.outsiders() == ()


def test_sampled_clients_are_judged_by_all_they_met() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(200):
        cohort = np.sort(random.choice(40, K, replace=False))
        bad = tuple(int(k) for k in np.flatnonzero(cohort % 10 == 0))
        updates = lie(alike(random), "noise", random, bad)
        evidence = evidence.after([int(name) for name in cohort], gram(updates))
    assert set(evidence.outsiders()) == {0, 10, 20, 30}


def test_only_so_many_clients_are_remembered() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for t in range(60):
        evidence = evidence.after(range(K * t, K * t + K), gram(alike(random)))
    assert len(evidence.seen) == REMEMBERED
    assert list(evidence.seen)[-1] == 60 * K - 1
    assert evidence.likeness.shape == evidence.pairs.shape == (REMEMBERED, REMEMBERED)


def test_a_round_of_distrusted_clients_alone_changes_nothing() -> None:
    state = play(20, "noise")[-1]
    w = np.ones(P)
    current = Round(w, np.tile(w + 1, (2, 1)), [1, 1], clients=(0, 2))
    model, after = fedhaw.FedHAWAuto().aggregate(state, current)
    assert after is state
    np.testing.assert_array_equal(model, w)

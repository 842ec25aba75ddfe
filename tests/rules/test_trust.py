"""Trust, on made-up rounds of clients that agree, differ or lie."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedhaw
from fedhaw.rules import Round
from fedhaw.rules.auto_lengths import parole_limits
from fedhaw.rules.auto_replay import REPLAY
from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Client
from fedhaw.rules.opposition import opposed as opponents
from fedhaw.rules.trust import ACQUAINTED, PROBATION, REMEMBERED, ROUNDS, Evidence

K, P = 10, 2000
BAD = (0, 2, 5)
EXAMPLES = 100.0 + np.arange(1, K + 1) * 10.0


STILL = np.zeros(K)
SPREAD = 0.04 + 0.005 * np.linspace(-1.0, 1.0, K)
NOBODY = ((), (), ())


def opposed(
    gram: Any, growth: Any, most: int = 3, highest: float = 0.0, turned: bool = True
) -> Any:
    """The opponents among clients with as much data each; they were alike before, or not."""
    all_of_them = np.full(len(gram), turned)
    return opponents(gram, np.ones(len(gram)) / len(gram), growth, all_of_them, most, highest)


def wrong(bad: Sequence[int]) -> Any:
    """(K,) the growth where the model gets some clients' labels wrong."""
    return np.where(np.isin(np.arange(K), bad), -0.05, 0.05)


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


def stretched(updates: Any, w: Any, cosines: Any) -> Any:
    """The updates at given cosines with the model."""
    along = w / np.linalg.norm(w)
    across = updates - np.outer(updates @ along, along)
    lengths = np.linalg.norm(across, axis=1)
    return across + np.outer(lengths * cosines, along)


def after(
    evidence: Evidence,
    names: Sequence[int],
    gram: Any,
    growth: Any,
    examples: Any = None,
    first: bool = False,
) -> Evidence:
    """The evidence with one more round, of clients with as much data each unless it is given."""
    examples = np.ones(len(names)) if examples is None else examples
    return evidence.after(names, gram, growth, examples, np.sqrt(np.diag(gram)), first)


def play(
    rounds: int, kind: str = "", until: int = 10_000, lost: float = 0.0, unit: float = 1.0
) -> list[FedHAWAutoState]:
    """The states of a federation some of whose clients lie in its first `until` rounds.

    The model knows the honest clients' labels; those of the others it gets wrong. Reversed updates
    stretch it, and it gets wrong the labels of all others."""
    rule, random = fedhaw.FedHAWAuto(), np.random.default_rng(3)
    w, state, states = unit * random.standard_normal(P), fedhaw.FedHAWAuto().init(), []
    for t in range(rounds):
        lying = kind if t < until else ""
        updates = lie(alike(random), lying, random)
        cosines = 0.05 + 0.005 * random.standard_normal(K)
        cosines[list(BAD)] *= -1 if lying else 1
        cosines *= -1 if lying == "reversed" else 1
        received = random.random(K) >= lost
        received[1] = True
        moved = stretched(updates, w, cosines)
        W = np.where(received[:, None], w + 0.01 * unit * moved, w)
        w, state = rule.aggregate(state, Round(w, W, EXAMPLES, received))
        states.append(state)
    return states


@pytest.mark.parametrize("kind", ["noise", "reversed", "colluding"])
@pytest.mark.parametrize("lost", [0.0, 0.4])
def test_bad_clients_lose_their_weight(kind: str, lost: float) -> None:
    states = play(60, kind, lost=lost)
    assert set(states[-1].distrusted) == set(BAD)
    weights = states[-1].weights
    assert np.all(weights[list(BAD)] == 0)
    good = [k for k in range(K) if k not in BAD]
    np.testing.assert_allclose(weights[good], EXAMPLES[good] / EXAMPLES[good].sum())
    assert states[-1].metrics["distrusted"] == len(BAD)


def test_one_sentence_names_whom_and_only_in_the_round_it_happened() -> None:
    notes = [state.note for state in play(ROUNDS + 5, "noise")]
    said = [note for note in notes if note is not None]
    assert said == ["the server stopped trusting client 0, 2, 5"]
    assert notes.index(said[0]) >= ROUNDS - 1


def test_a_client_that_mends_its_ways_is_trusted_again() -> None:
    states = play(PROBATION + 110, "reversed", until=30)
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
        evidence = after(evidence, range(K), gram(alike(random, noise)), STILL)
        assert evidence.outsiders == ()


@pytest.mark.parametrize("seed", range(5))
def test_clients_that_are_only_different_keep_their_weight(seed: int) -> None:
    random, evidence = np.random.default_rng(seed), Evidence()
    directions = random.standard_normal((K, P))
    for _ in range(60):
        evidence = after(evidence, range(K), gram(different(random, directions)), STILL)
        assert evidence.outsiders == ()


def test_no_unit_changes_a_verdict() -> None:
    for state, rescaled in zip(play(25, "noise"), play(25, "noise", unit=2.0**20), strict=True):
        assert state.distrusted == rescaled.distrusted


def directions_alone(random: Any) -> Any:
    """(K, K) the inner products of updates that have nothing in common."""
    return gram(random.standard_normal((K, P)))


def all_but(bad: tuple[int, ...], others: float, theirs: float, random: Any) -> Any:
    """(K,) the growth of most clients about one number, of a few at another."""
    growth = others * (1 + 0.5 * random.random(K))
    growth[list(bad)] = theirs
    return growth


@pytest.mark.parametrize("bad", [(2,), BAD])
def test_who_alone_shrinks_the_model_is_told_where_nobody_is_alike(bad: tuple[int, ...]) -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(30):
        growth = all_but(bad, 0.02, -0.07, random)
        evidence = after(evidence, range(K), directions_alone(random), growth)
    assert evidence.outsiders == bad


@pytest.mark.parametrize(
    ("theirs", "unlike", "told"), [(-0.02, False, False), (-0.02, True, True), (-0.07, False, True)]
)
def test_who_shrinks_the_model_a_little_is_told_only_if_unlike_the_others(
    theirs: float, unlike: bool, told: bool
) -> None:
    """Honest clients of a small CNN on CIFAR-10 were at -0.016, and no less alike."""
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(30):
        growth = all_but(BAD, 0.01, theirs, random)
        updates = lie(alike(random), "noise" if unlike else "", random)
        evidence = after(evidence, range(K), gram(updates), growth)
    assert evidence.outsiders == (BAD if told else ())


@pytest.mark.parametrize(
    ("data", "others", "told"),
    [(99, 200, False), (100, 200, True), (50, 100, True), (9, 20, False)],
)
def test_who_has_little_data_is_not_judged(data: float, others: float, told: bool) -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    examples = np.where(np.arange(K) == 2, data, others)
    for _ in range(30):
        growth = all_but((2,), 0.02, -0.07, random)
        evidence = after(evidence, range(K), directions_alone(random), growth, examples)
    assert evidence.outsiders == ((2,) if told else ())


@pytest.mark.parametrize("data", [40.0, 200.0])
def test_who_has_little_data_is_no_measure_for_others(data: float) -> None:
    """Its own growth, half-way between, would blur the gap."""
    random, evidence = np.random.default_rng(0), Evidence()
    examples = np.where(np.arange(K) == 9, data, 200.0)
    for _ in range(30):
        growth = all_but(BAD, 0.02, -0.07, random)
        growth[9] = -0.03
        evidence = after(evidence, range(K), directions_alone(random), growth, examples)
    assert evidence.outsiders == (BAD if data < 100 else ())


@pytest.mark.parametrize(("data", "told"), [(400, True), (500, False)])
def test_who_holds_most_of_the_data_is_no_outsider(data: float, told: bool) -> None:
    """The model learns from it, and is wrong about all others."""
    random, evidence = np.random.default_rng(0), Evidence()
    examples = np.where(np.isin(np.arange(K), BAD), data / 3, 100.0)
    for _ in range(30):
        growth = all_but(BAD, 0.02, -0.07, random)
        evidence = after(evidence, range(K), directions_alone(random), growth, examples)
    assert evidence.outsiders == (BAD if told else ())


@pytest.mark.parametrize("kind", ["reversed", ""])
@pytest.mark.parametrize("bad", [(2,), BAD])
def test_who_alone_stretches_the_model_is_told_if_unlike_the_others(
    bad: tuple[int, ...], kind: str
) -> None:
    """Who reverses updates is. Where weight decay is all that is left to learn, others shrink the
    model, too, and whoever still learns something stretches it and is as like them as they are."""
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(60):
        updates = lie(alike(random), kind, random, bad)
        evidence = after(evidence, range(K), gram(updates), all_but(bad, -0.02, 0.07, random))
    assert evidence.outsiders == (bad if kind else ())


@pytest.mark.parametrize("growth", [0.0, -0.01])
def test_a_client_that_alone_holds_a_class_is_as_unlike_the_others_and_keeps_its_weight(
    growth: float,
) -> None:
    """The model learns to be in doubt about its data, not to be sure and wrong."""
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(60):
        updates = lie(alike(random, 0.2), "reversed", random, bad=(2,))
        others = 0.04 + 0.005 * random.standard_normal(K)
        others[2] = growth
        evidence = after(evidence, range(K), gram(updates), others)
        assert evidence.outsiders == ()


@pytest.mark.parametrize("near", [True, False])
def test_one_that_shrinks_the_model_is_acquitted_by_being_near_all_others(near: bool) -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    directions = random.standard_normal((K, P))
    for _ in range(ROUNDS):
        updates = different(random, directions)
        updates[4] = updates.mean(axis=0) if near else random.standard_normal(P)
        evidence = after(evidence, range(K), gram(updates), wrong([4]))
    assert evidence.outsiders == (() if near else (4,))


def test_several_that_are_near_each_other_do_not_acquit_each_other() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    directions = random.standard_normal((K, P))
    for _ in range(ROUNDS):
        updates = lie(different(random, directions), "colluding", random)
        evidence = after(evidence, range(K), gram(updates), wrong(BAD))
    assert evidence.outsiders == BAD


@pytest.mark.parametrize("seed", range(5))
def test_clients_whose_data_the_model_knows_more_or_less_well_keep_their_weight(seed: int) -> None:
    random, evidence = np.random.default_rng(seed), Evidence()
    known = 0.1 * random.random(K) - 0.01
    for t in range(60):
        growth = (known + 0.03 * random.standard_normal(K)) / (1 + 0.1 * t)
        evidence = after(evidence, range(K), directions_alone(random), growth)
        assert evidence.outsiders == ()


def test_a_client_that_was_away_is_compared_with_its_own_rounds() -> None:
    """All ask for less growth as training ends; who is there only then is no outsider for it."""
    random, evidence = np.random.default_rng(0), Evidence()
    for t in range(60):
        here = range(K) if t >= 40 else range(K - 1)
        growth = 0.3 * 0.9**t + 0.005 * random.standard_normal(K)
        updates = random.standard_normal((len(here), P))
        evidence = after(evidence, here, gram(updates), growth[: len(here)])
        assert evidence.outsiders == ()


def test_looking_like_the_others_for_a_moment_is_not_enough() -> None:
    states = play(PROBATION + 120, "reversed", until=40)
    fell = next(t for t, state in enumerate(states) if state.distrusted)
    back = next(t for t, state in enumerate(states) if t > fell and not state.distrusted)
    assert back - 40 >= PROBATION


def back_on_parole() -> Evidence:
    """Three that lied are trusted again, and on parole."""
    random, evidence, told = np.random.default_rng(0), Evidence(), False
    for t in range(200):
        lying = t < 25
        updates = lie(alike(random), "reversed" if lying else "", random)
        growth = all_but(BAD, -0.04, 0.06, random) if lying else SPREAD
        evidence = after(evidence, range(K), gram(updates), growth)
        told |= evidence.outsiders == BAD
        if told and not evidence.outsiders:
            return evidence
    raise AssertionError("they never come back")


def one_more(
    evidence: Evidence, liars: tuple[int, ...] = (), times: float = 1.0, grown: float = 0.0
) -> Evidence:
    """The evidence after a round in which some have another length or growth than the others."""
    random, among = np.random.default_rng(1), np.isin(np.arange(K), liars)
    updates = alike(random) * np.where(among, times, 1.0)[:, None]
    return after(evidence, range(K), gram(updates), SPREAD + np.where(among, grown, 0.0))


@pytest.mark.parametrize(
    ("longer", "aside", "apart"),
    [
        (1.26, 0.0, True), (1.24, 0.0, False), (1.01, 0.026, True), (1.01, -0.026, True),
        (1.01, 0.024, False), (0.99, 0.5, False),
    ],
)  # fmt: skip
def test_who_lies_again_on_parole_is_set_apart_and_waits_twice_as_long(
    longer: float, aside: float, apart: bool
) -> None:
    """Neither a gap nor a longer update would do of a client that was never set apart."""
    evidence = back_on_parole()
    assert set(evidence.parole) == set(BAD)
    assert evidence.parole == pytest.approx({k: evidence.lengths[k] for k in BAD}, rel=0.01)
    assert set(evidence.probation.values()) == {PROBATION}
    # What comes after one more round like the last: the middle of the others' range, and beyond.
    known = {**evidence.lengths, 2: longer * evidence.parole[2]}
    grown: dict[Client, float] = {
        **dict(zip(range(K), SPREAD.tolist(), strict=True)),
        2: 0.04 + aside,
    }
    evidence = replace(evidence, lengths=known, growth=grown)
    again = one_more(evidence, (2,), longer, aside)
    assert again.outsiders == ((2,) if apart else ())
    if apart:
        assert again.probation == {0: PROBATION, 2: 2 * PROBATION, 5: PROBATION}
        assert set(again.parole) == {0, 5}
        waited = 0
        while again.outsiders:
            again, waited = one_more(again), waited + 1
        assert waited >= 2 * PROBATION
        assert set(again.parole) == set(BAD)


def test_only_who_takes_part_and_no_more_than_a_third_relapse() -> None:
    evidence = back_on_parole()
    longer = {name: 2.0 * length for name, length in evidence.lengths.items()}
    evidence = replace(evidence, lengths=longer)
    assert one_more(evidence).outsiders == BAD
    present, updates = range(3, K), alike(np.random.default_rng(1))[3:]
    assert after(evidence, present, gram(updates), SPREAD[3:]).outsiders == (5,)
    parole: dict[Client, float] = dict.fromkeys(range(5), 1.0)
    calm = replace(evidence, parole=parole, lengths=dict.fromkeys(range(K), 2.0))
    assert len(one_more(calm).outsiders) == 3


@pytest.mark.parametrize(("examples", "apart"), [(1.0, True), (0.1, False), (9.0, False)])
def test_who_has_too_little_of_the_data_or_too_much_does_not_relapse(
    examples: float, apart: bool
) -> None:
    evidence = back_on_parole()
    longer = {**evidence.lengths, 2: 2.0 * evidence.lengths[2]}
    evidence = replace(evidence, lengths=longer, parole={2: evidence.parole[2]})
    data = np.where(np.arange(K) == 2, examples, 1.0)
    updates = alike(np.random.default_rng(1))
    found = after(evidence, range(K), gram(updates), SPREAD, data).outsiders
    assert found == ((2,) if apart else ())


def test_opposition_sets_who_is_on_parole_apart_for_longer() -> None:
    evidence = replace(back_on_parole(), opposition={2: 1.0}).against([2])
    assert evidence.outsiders == (2,)
    assert evidence.probation[2] == 2 * PROBATION
    assert set(evidence.parole) == {0, 5}


def test_who_was_long_while_nobody_counted_it_gets_no_room_by_it() -> None:
    evidence = back_on_parole()
    lengths: dict[Client, float] = {**dict.fromkeys(range(K), 1.0), 2: 50.0}
    evidence = replace(evidence, outsiders=(2,), parole={}, lengths=lengths)
    evidence = replace(evidence, calm={2: PROBATION - 1.0}, probation={})
    updates = alike(np.random.default_rng(1))
    updates *= np.where(np.arange(K) == 2, 50.0, 1.0)[:, None] / np.linalg.norm(updates[0])
    back = after(evidence, range(K), gram(updates), SPREAD)
    assert back.outsiders == ()
    assert back.parole[2] == pytest.approx(6.0, rel=0.05)
    assert back.probation == {2: PROBATION}
    assert one_more(back, (2,), 5.0 / float(np.linalg.norm(updates[0]))).outsiders == (2,)


def test_where_everybody_is_on_parole_they_go_as_far_as_each_other() -> None:
    evidence = replace(back_on_parole(), parole=dict.fromkeys(range(K), 1.0))
    assert evidence.parole_length == np.median([*evidence.lengths.values()])
    assert replace(evidence, outsiders=tuple(range(K))).parole_length == np.inf


def test_a_shout_on_parole_counts_as_usual_once_and_is_a_relapse() -> None:
    """Beyond what anybody may send the update is shortened, and its client is seen all the same."""
    evidence, random, rule = back_on_parole(), np.random.default_rng(1), fedhaw.FedHAWAuto()
    w, updates = random.standard_normal(P), alike(random)
    updates[2] *= 20
    state = replace(rule.init(), evidence=evidence)
    _, state = rule.aggregate(state, Round(w, w + updates, EXAMPLES))
    share, usual = EXAMPLES[2] / EXAMPLES.sum(), evidence.parole_length
    np.testing.assert_allclose(state.weights[2], share * usual / np.linalg.norm(updates[2]))
    assert state.distrusted == (2,)


def test_parole_does_not_end_and_costs_nobody_the_weight() -> None:
    evidence = back_on_parole()
    for _ in range(4 * PROBATION):
        evidence = one_more(evidence)
        assert evidence.outsiders == ()
    assert set(evidence.parole) == set(BAD)
    assert one_more(evidence, (2,), 4.0).outsiders == (2,)


def test_who_never_lied_is_not_on_parole() -> None:
    assert one_more(back_on_parole(), (3,), 4.0, 0.5).outsiders == ()


@pytest.mark.parametrize("before", [True, False])
def test_who_was_set_apart_before_is_not_taken_to_be_mending(before: bool) -> None:
    """Its updates are far shorter than they have been; that excuses a client once."""
    random = np.random.default_rng(0)
    evidence = Evidence(probation=dict.fromkeys(BAD, PROBATION) if before else {})
    for t in range(60):
        updates = random.standard_normal((K, P)) * (10.0 if t < 5 else 1.0)
        evidence = after(evidence, range(K), gram(updates), all_but(BAD, 0.03, -0.06, random))
    assert evidence.outsiders == (BAD if before else ())


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("undetected", [True, False])
def test_an_undetected_liar_is_no_measure_of_what_is_calm(undetected: bool, side: int) -> None:
    """It stands far from the others in growth, and would make room for every other one."""
    growth = np.where(np.arange(K) == 2, side * 0.3, SPREAD)
    growth[9] = side * 0.6 if undetected else growth[9]
    known: dict[Client, float] = dict(zip(range(K), growth.tolist(), strict=True))
    evidence = replace(back_on_parole(), growth=known, outsiders=(2,), parole={}, calm={})
    updates = alike(np.random.default_rng(1))
    assert after(evidence, range(K), gram(updates), growth).calm == {2: 0.0}


def test_who_is_on_parole_goes_no_further_than_is_usual_replayed_or_not() -> None:
    evidence, random = back_on_parole(), np.random.default_rng(1)
    w, rule = random.standard_normal(P), fedhaw.FedHAWAuto()
    updates = alike(random)
    honest = {k: evidence.lengths[k] for k in range(K) if k not in BAD}
    longest = max(honest, key=lambda k: honest[k])
    updates[[2, longest]] *= 3
    whole = Round(w, w + updates, EXAMPLES)
    usual = np.median([*honest.values()])
    lengths = np.linalg.norm(updates, axis=1)
    limits = parole_limits(evidence, whole, lengths**2)
    np.testing.assert_allclose(limits[2], usual / lengths[2])
    assert np.all(np.delete(limits, BAD) == 1)

    _, state = rule.aggregate(replace(rule.init(), evidence=evidence), whole)
    np.testing.assert_allclose(state.weights, limits * EXAMPLES / EXAMPLES.sum())
    state = replace(state, evidence=evidence)
    lost = np.isin(np.arange(K), (2, longest))
    _, after_loss = rule.aggregate(state, replace(whole, received=~lost))
    assert after_loss.absent == (longest, 2)
    assert after_loss.replayed is not None
    replayed = np.linalg.norm(after_loss.replayed, axis=1)
    np.testing.assert_allclose(replayed, REPLAY * np.array([honest[longest], usual]))


def test_half_of_the_clients_is_no_minority() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(30):
        updates = lie(alike(random, 0.2), "colluding", random, bad=(0, 1, 2, 3, 4))
        evidence = after(evidence, range(K), gram(updates), wrong(range(5)))
        assert evidence.outsiders == ()


def test_few_clients_are_never_judged() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(30):
        updates = lie(alike(random, 0.2)[:6], "reversed", random, bad=(0,))
        evidence = after(evidence, range(6), gram(updates), wrong([0])[:6])
        assert evidence.outsiders == ()


def test_sampled_clients_are_judged_by_all_they_met() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for _ in range(200):
        cohort = np.sort(random.choice(40, K, replace=False))
        bad = tuple(int(k) for k in np.flatnonzero(cohort % 10 == 0))
        updates = lie(alike(random), "noise", random, bad)
        evidence = after(evidence, [int(name) for name in cohort], gram(updates), wrong(bad))
    assert set(evidence.outsiders) == {0, 10, 20, 30}


def test_only_so_many_clients_are_remembered() -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for t in range(60):
        evidence = after(evidence, range(K * t, K * t + K), gram(alike(random)), STILL)
    assert len(evidence.seen) == REMEMBERED
    assert list(evidence.seen)[-1] == 60 * K - 1
    assert evidence.likeness.shape == evidence.pairs.shape == (REMEMBERED, REMEMBERED)


def test_a_round_of_distrusted_clients_alone_changes_nothing() -> None:
    state = play(ROUNDS + 5, "noise")[-1]
    w = np.ones(P)
    current = Round(w, np.tile(w + 1, (2, 1)), [1, 1], clients=(0, 2))
    model, after = fedhaw.FedHAWAuto().aggregate(state, current)
    assert after is state
    np.testing.assert_array_equal(model, w)


def test_an_update_that_is_far_too_long_counts_as_one_of_usual_length() -> None:
    random, w = np.random.default_rng(0), np.zeros(P)
    updates = alike(random)
    updates[2] *= 9
    model, state = fedhaw.FedHAWAuto().aggregate(
        fedhaw.FedHAWAuto().init(), Round(w, w + updates, np.ones(K))
    )
    lengths = np.linalg.norm(updates, axis=1)
    usual = float(np.median(lengths))
    expected = np.where(lengths > 4 * usual, usual / lengths, 1.0) / K
    assert expected[2] < 0.02
    np.testing.assert_allclose(state.weights, expected)
    np.testing.assert_allclose(model, expected @ updates)
    # Nor is it replayed at its own length when the next upload of the client is lost.
    received = np.arange(K) != 2
    W = np.where(received[:, None], model + alike(random), model)
    _, state = fedhaw.FedHAWAuto().aggregate(state, Round(model, W, np.ones(K), received))
    assert state.absent == ()


def against_all(random: Any, w: Any, wrong: bool) -> Any:
    """Updates of which client 2's is against all others, and its growth, if it is wrong, beyond."""
    updates = alike(random)
    updates[2] *= -4
    return stretched(updates, w, np.where(np.arange(K) == 2, 0.1, 0.0) if wrong else STILL)


def test_who_is_against_all_others_does_not_count_in_that_round() -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    for _ in range(ACQUAINTED):
        _, state = rule.aggregate(state, Round(w, w + alike(random), EXAMPLES))
    updates = against_all(random, w, wrong=False)
    model, state = rule.aggregate(state, Round(w, w + updates, EXAMPLES))
    assert (state.distrusted, state.note) == ((), "shortened the update of client 2")
    # Neither its update nor what it left in the momentum is in the model.
    weights = np.where(np.arange(K) == 2, 0.0, EXAMPLES / EXAMPLES.sum())
    np.testing.assert_allclose(model, np.exp(state.gamma) * (w + weights @ updates))
    np.testing.assert_allclose(state.weights, weights)
    received = np.arange(K) != 2
    W = np.where(received[:, None], model + alike(random), model)
    _, state = rule.aggregate(state, Round(model, W, EXAMPLES, received))
    assert state.absent == ()


def from_the_start(random: Any, w: Any) -> Any:
    """Updates of which client 9's, of a class of its own, is long and against all others."""
    updates = alike(random)
    updates[9] *= -5.5
    return stretched(updates, w, wrong([9]))


def test_who_is_against_all_others_from_the_start_is_different_and_keeps_its_weight() -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    share = EXAMPLES[9] / EXAMPLES.sum()
    for _ in range(ROUNDS + 10):
        updates = from_the_start(random, w)
        _, state = rule.aggregate(state, Round(w, w + updates, EXAMPLES))
        assert state.distrusted == ()
        # It weighs half of what the others do together when they are as long as usual.
        lengths = np.linalg.norm(updates, axis=1)
        others = (1 - share) * np.median(lengths)
        assert 0.4 * others < state.weights[9] * lengths[9] < 0.6 * others
        assert state.weights[9] < share
    assert state.spared == (9,)


def test_who_is_not_there_at_the_start_is_not_different() -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    for t in range(5):
        received = (np.arange(K) != 9) | (t > 2)
        W = np.where(received[:, None], w + from_the_start(random, w), w)
        _, state = rule.aggregate(state, Round(w, W, EXAMPLES, received))
    assert state.spared == ()


def test_who_is_different_shields_nobody() -> None:
    """Client 9 has the least growth of all, and is excused; clients 2 and 5 are wrong."""
    random, evidence = np.random.default_rng(0), Evidence()
    for t in range(ROUNDS):
        updates = lie(alike(random), "noise", random, (2, 5))
        updates[9] *= -2
        growth = wrong([2, 5])
        growth[9] = -0.1
        evidence = after(evidence, range(K), gram(updates), growth, first=t < 2)
    assert (evidence.different, set(evidence.outsiders)) == ((9,), {2, 5})


@pytest.mark.parametrize(("shortens_by", "apart"), [(1.0, (2,)), (0.95, ())])
def test_who_is_mending_keeps_its_weight(shortens_by: float, apart: tuple[int, ...]) -> None:
    random, evidence = np.random.default_rng(0), Evidence()
    for t in range(ROUNDS):
        updates = lie(alike(random), "noise", random, (2,))
        updates[2] *= shortens_by**t
        evidence = after(evidence, range(K), gram(updates), wrong([2]))
    assert evidence.outsiders == apart


def test_who_was_short_does_not_begin_to_be_long() -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    for t in range(40):
        updates = 0.9**t * alike(random)
        if t == 39:
            updates[2] *= 500
        _, state = rule.aggregate(state, Round(w, w + updates, EXAMPLES))
    assert state.note == "shortened the update of client 2"
    # At first it would have been usual to be eight times shorter than it is now.
    share, length = EXAMPLES[2] / EXAMPLES.sum(), np.linalg.norm(updates[2])
    assert state.weights[2] * length < 0.2 * share * length / 8


def test_two_clients_are_shortened_beside_what_was_usual() -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    for t in range(6):
        updates = alike(random)
        received = (np.arange(K) < 2) | (t < 5)
        updates[1] *= 100 if t == 5 else 1
        W = np.where(received[:, None], w + updates, w)
        _, state = rule.aggregate(state, Round(w, W, EXAMPLES, received))
    assert state.note == "shortened the update of client 1"
    assert state.weights[1] * 50 < EXAMPLES[1] / EXAMPLES.sum()


@pytest.mark.parametrize(("pause", "wrong", "apart"), [
    (0, True, True), (8, True, True), (15, True, False), (0, False, False),
])  # fmt: skip
def test_who_is_against_all_others_twice_is_not_trusted(
    pause: int, wrong: bool, apart: bool
) -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    for liar in (*[False] * ACQUAINTED, True, *[False] * pause, True):
        assert state.distrusted == ()
        updates = against_all(random, w, wrong) if liar else stretched(alike(random), w, STILL)
        _, state = rule.aggregate(state, Round(w, w + updates, EXAMPLES))
    assert state.distrusted == ((2,) if apart else ())
    assert ("the server stopped trusting client 2" in (state.note or "")) == apart


def test_a_short_update_against_others_that_hardly_move_is_no_opposition() -> None:
    updates, growth = alike(np.random.default_rng(0)), np.linspace(-0.01, 0.01, K)
    updates[2] *= -4
    growth[2] += 0.1
    length = float(np.linalg.norm(updates[2]))
    for highest, found in ((length, [2]), (2 * length, [])):
        assert list(opposed(gram(updates), growth, 3, highest).apart) == found


@pytest.mark.parametrize(
    ("factor", "apart", "found"),
    [(-1, 0.1, None), (-2, 0.1, 2), (-2, -0.1, 2), (-2, 0, None), (-4, 0, 2), (4, 0.1, None)],
)
def test_who_is_against_all_others_is_longer_than_they_or_wrong_about_the_labels(
    factor: float, apart: float, found: int | None
) -> None:
    updates, growth = alike(np.random.default_rng(0)), np.linspace(-0.01, 0.01, K)
    updates[2] *= factor
    growth[2] += apart
    seen = NOBODY if found is None else ([found], [found], [found] if apart else [])
    assert opposed(gram(updates), growth) == seen


def test_nobody_is_against_others_that_do_not_agree() -> None:
    updates = np.random.default_rng(0).standard_normal((K, P))
    updates[2] = -4 * updates.sum(axis=0)
    assert opposed(gram(updates), STILL) == NOBODY


@pytest.mark.parametrize("liars", [[2], [2, 5], [2, 5, 8]])
def test_a_few_that_lie_together_are_against_all_others(liars: list[int]) -> None:
    updates = alike(np.random.default_rng(0))
    updates[liars] *= -4
    growth = np.where(np.isin(np.arange(K), liars[:1]), 0.1, 0.0)
    assert opposed(gram(updates), growth) == (liars, liars, liars[:1])
    assert opposed(gram(updates), growth, most=len(liars) - 1) == NOBODY


@pytest.mark.parametrize(
    ("of_liar", "of_others", "proven"), [(-0.1, 0.0, True), (0.1, 0.0, False), (0.1, -0.05, True)]
)
def test_who_was_never_alike_is_proven_wrong_by_growth_alone(
    of_liar: float, of_others: float, proven: bool
) -> None:
    updates = alike(np.random.default_rng(0))
    updates[2] *= -4
    growth = np.where(np.arange(K) == 2, of_liar, of_others)
    shown = [2] if proven else []
    assert opposed(gram(updates), growth, turned=False) == ([2], shown, shown)


def test_of_a_few_that_are_near_each_other_all_must_be_long() -> None:
    """Two honest clients that share a class are against all others; one of them may be long."""
    updates = alike(np.random.default_rng(0))
    updates[2] *= -4
    updates[5] *= -1
    assert opposed(gram(updates), STILL) == NOBODY


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_an_update_without_a_length_is_against_nobody(odd: float) -> None:
    found = gram(alike(np.random.default_rng(0)))
    found[2] = found[:, 2] = odd
    with np.errstate(invalid="ignore"):
        assert opposed(found, STILL) == NOBODY


def test_not_more_than_a_third_are_set_apart() -> None:
    random, rule = np.random.default_rng(0), fedhaw.FedHAWAuto()
    w, state = random.standard_normal(P), rule.init()
    for liar in (*[None] * ACQUAINTED, *np.repeat(range(5), 2)):
        updates = alike(random)
        if liar is not None:
            updates[liar] *= -4
        updates = stretched(updates, w, np.where(np.arange(K) == liar, 0.1, 0.0))
        _, state = rule.aggregate(state, Round(w, w + updates, EXAMPLES))
    assert state.distrusted == (0, 1, 2)


def test_a_client_with_more_data_may_go_further() -> None:
    random, w = np.random.default_rng(0), np.zeros(P)
    updates, examples = alike(random), np.ones(K)
    updates[2] *= 9
    examples[2] = 5
    _, state = fedhaw.FedHAWAuto().aggregate(
        fedhaw.FedHAWAuto().init(), Round(w, w + updates, examples)
    )
    np.testing.assert_allclose(state.weights, examples / examples.sum())

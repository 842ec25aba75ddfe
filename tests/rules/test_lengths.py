"""The guard on absurdly long updates: whom it refuses, whom never, and what it remembers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhaw.rules import InvalidRule, LengthGuard

EQUAL = dict.fromkeys(range(10), 100.0)
LENGTHS = st.floats(1e-6, 1e6)


def refused(guard: LengthGuard, *lengths: float) -> list[int]:
    """Who is refused among clients with equally many samples."""
    names, _ = guard.judge(dict(enumerate(lengths)), EQUAL)
    return sorted(names)


def test_a_client_that_diverged_is_refused_and_named() -> None:
    lengths = {"a": 1.0, "b": 2.0, "c": 2e18, "d": 1.5}
    reasons, _ = LengthGuard().judge(lengths, dict.fromkeys(lengths, 50.0))
    assert reasons == {"c": "the update is 1.3e+18 times as long as usual"}


@pytest.mark.parametrize("others", [2, 3, 9])
@pytest.mark.parametrize("times", [11.0, 100.0, 1e6, 1e17, math.inf])
def test_one_liar_among_a_few_is_refused(others: int, times: float) -> None:
    assert refused(LengthGuard(), times, *[1.0] * others) == [0]


@given(st.lists(LENGTHS, min_size=1, max_size=2))
def test_two_clients_alone_cannot_outvote_each_other(lengths: list[float]) -> None:
    assert refused(LengthGuard(), *lengths) == []


@given(st.lists(st.floats(1.0, 10.0), min_size=1, max_size=10), st.floats(1e-9, 1e9))
def test_lengths_within_the_limit_are_never_refused_whatever_their_unit(
    lengths: list[float], unit: float
) -> None:
    assert refused(LengthGuard(), *(length * unit for length in lengths)) == []


@given(st.lists(LENGTHS, min_size=3, max_size=10))
def test_no_more_than_half_of_the_clients_are_refused(lengths: list[float]) -> None:
    assert len(refused(LengthGuard(), *lengths)) <= len(lengths) / 2


def test_in_a_small_round_recent_rounds_say_what_is_usual() -> None:
    guard = LengthGuard()
    for _ in range(3):
        _, guard = guard.judge({0: 1.0, 1: 1.0, 2: 1.0}, EQUAL)
    assert refused(guard, 1e6) == [0]
    assert refused(guard, 1.0, 1e6) == [1]
    assert refused(guard, 5.0, 9.0) == []


def test_most_of_a_few_that_diverged_do_not_make_it_usual() -> None:
    """Two of three: so a federation of ten lost in one round what it had learnt in 690."""
    guard = LengthGuard()
    for _ in range(3):
        _, guard = guard.judge(dict.fromkeys(range(10), 1.0), dict.fromkeys(range(10), 10.0))
    assert refused(guard, 1.0, 19.0, 1300.0) == [1, 2]
    assert refused(guard, 1.0, 9.0, 10.0) == []


def converged() -> LengthGuard:
    """A guard after rounds in which updates became a thousand times as short."""
    guard = LengthGuard()
    for length in (*[1.0] * 5, 0.1, 0.01, *[0.001] * 5):
        _, guard = guard.judge(dict.fromkeys(range(10), length), EQUAL)
    return guard


def test_who_still_learns_when_the_others_have_little_to_learn_is_not_shut_out() -> None:
    """So a federation of ten that had learnt nearly everything refused nine for ever."""
    assert refused(converged(), *[0.001] * 9, 1.0) == []
    assert refused(converged(), *[0.001] * 9, 1.1) == [9]
    assert refused(converged(), *[0.001] * 3, *[5.0] * 7) == []


def test_who_is_left_to_the_rule_is_refused_for_absurd_lengths_alone() -> None:
    for length, seen in ((99.0, []), (101.0, [9])):
        lengths = dict(enumerate([*[0.001] * 9, length]))
        assert [*converged().judge(lengths, EQUAL, spared=[9])[0]] == seen
        assert [*converged().judge(lengths, EQUAL, spared=[8])[0]] == [9]


def test_one_round_alone_does_not_raise_what_is_let_pass() -> None:
    guard = converged()
    for lengths in ((0.001, 9.0, 9.5), *[(0.001,) * 3] * 4):
        assert refused(guard, *lengths) == []
        _, guard = guard.judge(dict(enumerate(lengths)), EQUAL)
    assert refused(guard, *[0.001] * 9, 1.1) == [9]


def test_most_of_a_round_are_not_refused_for_long() -> None:
    guard, waited = converged(), 0
    lengths = [0.001] * 3 + [50.0] * 7
    while refused(guard, *lengths):
        _, guard = guard.judge(dict(enumerate(lengths)), EQUAL)
        waited += 1
    assert 0 < waited <= 5


@pytest.mark.parametrize("known", [True, False])
def test_it_goes_on_from_what_a_checkpoint_kept(known: bool) -> None:
    guard = converged()
    facts = guard.facts if known else {"recent": guard.facts["recent"]}
    back = LengthGuard().going_on(facts)
    assert (back == guard) == known
    assert back.highest == (1.0 if known else 0.0)


def test_a_majority_that_sends_back_what_it_got_does_not_outlaw_the_others() -> None:
    assert refused(LengthGuard(), 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 1.5) == []


def test_who_has_more_data_may_go_further_but_not_by_its_own_word_alone() -> None:
    lengths = {0: 40.0, 1: 1.0, 2: 1.0, 3: 1.0}
    examples = {0: 400.0, 1: 10.0, 2: 10.0, 3: 10.0}
    assert LengthGuard().judge(lengths, examples)[0] == {}
    assert list(LengthGuard().judge(lengths | {0: 101.0}, examples | {0: 1e12})[0]) == [0]


def test_a_claim_of_data_that_gives_weight_gives_no_manifold_length() -> None:
    examples = {0: 20.0, 1: 10.0, 2: 10.0, 3: 10.0}
    for length, names in ((10.9, []), (11.1, [0])):
        lengths = {0: length, 1: 1.0, 2: 1.0, 3: 1.0}
        assert list(LengthGuard().judge(lengths, examples)[0]) == names


def test_a_federation_that_takes_longer_steps_from_now_on_goes_on() -> None:
    guard = LengthGuard()
    for _ in range(9):
        _, guard = guard.judge({0: 1.0, 1: 1.0}, EQUAL)
    waited = 0
    while refused(guard, 50.0, 60.0):
        _, guard = guard.judge({0: 50.0, 1: 60.0}, EQUAL)
        waited += 1
    assert 0 < waited <= 5


def test_zero_turns_it_off() -> None:
    guard = LengthGuard(0)
    assert guard.judge({0: 1.0, 1: 1.0, 2: math.inf}, EQUAL) == ({}, guard)


@pytest.mark.parametrize("limit", [1.0, 0.5, -3.0, math.nan, math.inf, "ten", True])
def test_a_limit_that_cannot_be_is_refused(limit: float) -> None:
    with pytest.raises(InvalidRule, match="limit > 1"):
        LengthGuard(limit)

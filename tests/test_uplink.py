from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhaw.uplink import (
    BurstyUplink,
    HourlyUplink,
    InvalidUplink,
    LabelUplink,
    LateUplink,
    LetterUplink,
    RecordedUplink,
    Uplink,
    uplink_of,
)

ALL = range(40)


def losses(uplink: Uplink, rounds: int, seed: int = 3, clients: range = ALL) -> np.ndarray:
    return np.array([uplink.lost(seed, t, clients) for t in range(rounds)])


@pytest.mark.parametrize(
    "uplink",
    [
        LetterUplink(0.8),
        BurstyUplink(0.1, 0.3, 0.05, 0.9),
        LabelUplink(tuple(k % 10 for k in ALL), 10, 0.8),
        HourlyUplink(0.5, "cut"),
        LateUplink(0.8, 2.5),
    ],
)
@given(seed=st.integers(0, 2**32 - 1), t=st.integers(0, 300), data=st.data())
def test_a_loss_depends_on_seed_round_and_client_alone(
    uplink: Uplink, seed: int, t: int, data: st.DataObject
) -> None:
    cohort = data.draw(st.lists(st.integers(0, 39), unique=True, min_size=1))
    everyone = uplink.lost(seed, t, ALL)
    assert uplink.lost(seed, t, cohort).tolist() == everyone[cohort].tolist()


def test_seeds_and_rounds_give_different_losses() -> None:
    uplink = LetterUplink(1.0)
    drawn = {uplink.lost(seed, t, ALL).tobytes() for seed in range(4) for t in range(4)}
    assert len(drawn) == 16


def test_the_letters_probabilities_are_uniform_and_each_client_keeps_its_own() -> None:
    uplink = LetterUplink(0.5)
    p = uplink.probabilities(0, range(20_000))
    assert p.min() >= 0
    assert p.max() < 0.5
    np.testing.assert_allclose(np.quantile(p, [0.25, 0.5, 0.75]), [0.125, 0.25, 0.375], atol=0.01)
    rates = losses(uplink, 2000, seed=0).mean(axis=0)
    # Five standard deviations of a mean of 2,000 draws.
    np.testing.assert_allclose(rates, uplink.probabilities(0, ALL), atol=5 * 0.5 / 2000**0.5)


def test_losses_of_the_letter_are_independent_from_round_to_round() -> None:
    lost = losses(LetterUplink(1.0), 1500)
    now, before = lost[1:] - lost.mean(axis=0), lost[:-1] - lost.mean(axis=0)
    assert abs((now * before).mean()) < 0.01


def test_no_losses_at_zero() -> None:
    assert not losses(LetterUplink(0.0), 50).any()
    assert not losses(BurstyUplink(0.5, 0.5, 0.0, 0.0), 50).any()


@pytest.mark.parametrize(
    ("to_bad", "to_good"),
    [(0.1, 0.3), (0.02, 0.05), (0.9, 0.8), (0.4, 0.6), (1.0, 1.0), (0.0, 1.0)],
)
def test_looking_back_finds_the_chain_that_walking_forward_does(
    to_bad: float, to_good: float
) -> None:
    uplink = BurstyUplink(to_bad, to_good)
    # The first loss below is certain when bad and impossible when good, so losses show the chain.
    lost = losses(uplink, 120)
    before, after = lost[:-1], lost[1:]
    for state, probability in ((False, to_bad), (True, 1 - to_good)):
        visits = (before == state).sum()
        if visits:
            rate = after[before == state].mean()
            assert abs(rate - probability) <= 5 * (0.25 / visits) ** 0.5
    share = to_bad / (to_bad + to_good)
    assert abs(lost.mean() - share) < 0.1


def test_a_chain_does_not_jump_where_its_history_is_out_of_sight() -> None:
    # Bad for ever once bad: no round may ever turn good again, however far one has to look back.
    lost = losses(BurstyUplink(0.02, 0.0), 100)
    assert (np.diff(lost.astype(int), axis=0) >= 0).all()


def test_bursts_have_the_asked_rate_and_length() -> None:
    lost = losses(BurstyUplink.bursts(0.2, 5.0), 1500)
    assert abs(lost.mean() - 0.2) < 0.03
    starts = (lost[1:] & ~lost[:-1]).sum()
    assert abs(lost[1:].sum() / starts - 5.0) < 0.5


def test_who_holds_the_first_class_loses_most() -> None:
    labels = np.zeros((4, 10), np.int64)
    labels[0, [0, 7]] = labels[1, [3, 4]] = labels[2, 9] = 5  # the last client holds nothing
    uplink = LabelUplink.of(labels, 0.9)
    assert uplink.smallest == (0, 3, 9, 9)
    rates = losses(uplink, 3000, clients=range(4)).mean(axis=0)
    np.testing.assert_allclose(rates, [0.9, 0.9 * 6 / 9, 0, 0], atol=0.05)


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ("sine", lambda t: 0.7 + 0.3 * np.sin(2 * np.pi * t / 20)),
        ("steps", lambda t: np.where(t < 10, 1.0, 0.4)),
        ("cut", lambda t: 0.7 + 0.3 * np.sin(2 * np.pi * t / 20)),
    ],
)
def test_by_the_hour_all_clients_are_lost_together(
    hours: Any, expected: Callable[[np.ndarray], np.ndarray]
) -> None:
    lost = losses(HourlyUplink(0.0, hours), 4000)
    by_hour = 1 - lost.reshape(-1, 20, len(ALL)).mean(axis=(0, 2))
    np.testing.assert_allclose(by_hour, expected(np.arange(20)), atol=0.03)


def test_below_the_cut_nobody_is_available() -> None:
    uplink = HourlyUplink(0.9, "cut")
    available = np.array([uplink.availability(0, t, ALL) for t in range(20)])
    plain = np.array([HourlyUplink(0.9).availability(0, t, ALL) for t in range(20)])
    assert np.all(available[plain < 0.25] == 0)
    np.testing.assert_array_equal(available[plain >= 0.25], plain[plain >= 0.25])
    assert (plain < 0.25).any()


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        "# measured in March\nround,client\n0,2\n\n 3 , 1\n3,0\n0,2\n", encoding="utf-8"
    )
    uplink = RecordedUplink.read(file)
    table = losses(uplink, 5, clients=range(3))
    assert sorted(zip(*np.nonzero(table), strict=True)) == [(0, 2), (3, 0), (3, 1)]
    uplink.check(3)
    with pytest.raises(InvalidUplink, match=r"trace\.csv names client 2"):
        uplink.check(2)


def test_windows_line_ends_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(b"\xef\xbb\xbfRound,Client\r\n7,1\r\n")
    assert RecordedUplink.read(file).losses == {(7, 1)}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"1,2\n", "heading round,client"),
        (b"client,round\n1,2\n", "heading round,client"),
        (b"round,client\n1\n", "two whole numbers"),
        (b"round,client\n1,2,3\n", "two whole numbers"),
        (b"round,client\n1,-2\n", "row 2"),
        (b"round,client\n1,2.5\n", "two whole numbers"),
        (b"round,client\n1,\xd9\xa3\n", "two whole numbers"),
        (b"round,client\n1," + b"9" * 5000 + b"\n", "two whole numbers"),
        (b"round,client\n1,2\xff\n", "cannot be read"),
        (b'round,client\n"1,2\n', "two whole numbers"),
        (b"round,client\n1," + b"x" * 200_000 + b"\n", "cannot be read"),
        (bytes(range(256)) * 20, "cannot be read"),
    ],
)
def test_a_hostile_trace_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(content)
    with pytest.raises(InvalidUplink, match=says) as refusal:
        RecordedUplink.read(file)
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidUplink, match=r"nowhere\.csv cannot be read .*No such file"):
        uplink_of(tmp_path / "nowhere.csv")
    with pytest.raises(InvalidUplink, match="cannot be read"):
        uplink_of(str(tmp_path))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LetterUplink(1.5),
        lambda: LetterUplink(float("nan")),
        lambda: LetterUplink("0.5"),  # type: ignore[arg-type]
        lambda: BurstyUplink(-0.1, 0.5),
        lambda: BurstyUplink(0.0, 0.0),
        lambda: BurstyUplink(0.1, 0.5, loss_when_bad=2),
        lambda: BurstyUplink.bursts(0.9, 2.0),
        lambda: BurstyUplink.bursts(0.5, 0.5),
        lambda: BurstyUplink.bursts(1.0, 5.0),
        lambda: LabelUplink((0, 10), 10, 0.5),
        lambda: LabelUplink((0, 1), 10, 1.5),
        lambda: LabelUplink((0, 1), 10, 0.5).lost(0, 0, [2]),
        lambda: HourlyUplink(-0.5),
        lambda: HourlyUplink(0.5, "noon"),  # type: ignore[arg-type]
        lambda: uplink_of("by-label", 0.5),
        lambda: uplink_of(-1),
        lambda: uplink_of(True),
        lambda: uplink_of([0.5]),  # type: ignore[arg-type]
    ],
)
def test_impossible_uplinks_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidUplink):
        make()


def test_what_a_user_may_write_for_an_uplink() -> None:
    assert uplink_of(None) is None
    assert uplink_of(0.5) == LetterUplink(0.5)
    assert uplink_of(np.float32(0.5)) == LetterUplink(0.5)  # type: ignore[arg-type]
    bursty = BurstyUplink(0.1, 0.2)
    assert uplink_of(bursty) is bursty
    assert uplink_of("by-label", 0.5, labels=lambda: np.eye(2, 3, 1, np.int64)) == LabelUplink(
        (1, 2), 3, 0.5
    )
    assert uplink_of("hourly", 0.5, hours="steps") == HourlyUplink(0.5, "steps")
    assert uplink_of("hourly") == HourlyUplink(0.0)
    assert uplink_of("by-label") is uplink_of("letter") is None


def test_what_the_letters_uplink_loses_is_late_by_a_mean_of_rounds() -> None:
    uplink, everybody = LateUplink(0.8, 2.5), range(20_000)
    assert uplink.lost(1, 2, everybody).tolist() == LetterUplink(0.8).lost(1, 2, everybody).tolist()
    delays = uplink.delays(1, 2, everybody)
    assert delays.min() == 1
    assert delays.mean() == pytest.approx(2.5, rel=0.03)
    assert uplink.delays(1, 2, [7, 3]).tolist() == delays[[7, 3]].tolist()
    assert LateUplink(0.5, 1.0).delays(0, 0, [0, 5]).tolist() == [1, 1]
    with pytest.raises(InvalidUplink, match="late is so by 1 round or more"):
        LateUplink(0.5, 0.5)


def test_a_trace_may_say_how_late_uploads_were(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("round,client,delay\n3,1,2\n4,1,0\n")
    uplink = RecordedUplink.read(trace)
    assert uplink.lost(0, 3, [0, 1]).tolist() == [False, True]
    assert uplink.delays(0, 3, [0, 1]).tolist() == [0, 2]
    assert uplink.delays(0, 4, [0, 1]).tolist() == [0, 0]
    trace.write_text("round,client,delay\n3,1\n")
    with pytest.raises(InvalidUplink, match="three whole numbers from 0, round,client,delay"):
        RecordedUplink.read(trace)

"""Long curves: what is kept is as it was, and what stands out is kept."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedhaw.history import Vector
from fedhaw.reports.thinning import telling_rounds, telling_rounds_of_many


def test_short_curves_are_whole() -> None:
    curves = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, 2.0]])
    assert telling_rounds(curves).tolist() == [0, 2]  # nothing was measured in round 1
    assert telling_rounds_of_many(curves).tolist() == [0, 2]


def test_a_spike_of_one_round_stays() -> None:
    curves = np.zeros((3, 100_000))
    curves[1, 54_321], curves[2, 99] = 1.0, -1.0
    kept = telling_rounds(curves)
    assert {54_321, 99, 0, 99_999} <= set(kept.tolist())
    assert len(kept) <= 800 + 2
    sheaf = np.tile(np.linspace(0, 1, 60)[:, None], 20_000)
    sheaf[30, 12_345] += 0.1  # within the others, but far from where it usually is
    assert 12_345 in telling_rounds_of_many(sheaf)
    assert len(telling_rounds_of_many(sheaf)) <= 400


@settings(max_examples=200, deadline=None)
@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 300))), st.integers(8, 100))
def test_any_curves_can_be_thinned(curves: Vector, most: int) -> None:
    for kept in (telling_rounds(curves, most), telling_rounds_of_many(curves, most)):
        assert (np.diff(kept) > 0).all()
        assert np.isfinite(curves[:, kept]).any(axis=0).all()
        assert len(kept) <= most + 2 * len(curves) + 6

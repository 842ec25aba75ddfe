"""What of a client's work cannot be used."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhaw.loss_reasons import NOT_FINITE
from fedhaw.simulation.engines.failures import unusable

NUMBERS = st.floats(width=32) | st.sampled_from([3e38, -3e38, float("inf"), float("-inf")])


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_a_vector_is_used_when_all_its_numbers_are_finite(numbers: list[float]) -> None:
    """Also where their sum is not: twice 3e38 is beyond what float32 holds."""
    vector = torch.tensor(numbers)
    expected = None if all(bool(number.isfinite()) for number in vector) else NOT_FINITE
    assert unusable(0.5, vector) == expected
    assert unusable(0.5, torch.zeros(3), vector) == expected


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_a_failure(loss: float) -> None:
    assert unusable(loss, torch.zeros(3)) == NOT_FINITE

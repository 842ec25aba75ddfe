"""What of a client's work cannot be used."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhaw.loss_reasons import NOT_FINITE
from fedhaw.simulation.engines.failures import inspected

NUMBERS = st.floats(width=32) | st.sampled_from([3e38, -3e38, float("inf"), float("-inf")])


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.integers(0, 6))
def test_a_model_is_used_when_all_its_numbers_are_finite(
    numbers: list[float], parameters: int
) -> None:
    """Also where their sum is not, or the update's length: 3e38 squared is beyond float32."""
    model = torch.tensor(numbers)
    start, trainable = torch.zeros(len(model)), min(parameters, len(model))
    length, failure = inspected(start, model, trainable, 0.5, [])
    assert failure == (None if all(bool(number.isfinite()) for number in model) else NOT_FINITE)
    assert inspected(start, start, trainable, 0.5, [start, model]) == (0.0, failure)
    if failure is None and max(map(abs, numbers)) < 1e18:
        assert length == pytest.approx(math.hypot(*numbers[:trainable]), rel=1e-5, abs=1e-22)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_a_failure(loss: float) -> None:
    assert inspected(torch.zeros(3), torch.zeros(3), 3, loss, []) == (0.0, NOT_FINITE)

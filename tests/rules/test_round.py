"""A round whose parts do not fit together is refused with a sentence that says why."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from fedhaw.rules import (
    FedAdp,
    FedAvg,
    FedHAW,
    FedHyperG,
    FedLAW,
    FedLWS,
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Round,
)

GOOD: dict[str, Any] = {
    "global_model": np.zeros(3, np.float32),
    "client_models": np.ones((2, 3), np.float32),
    "num_examples": [1, 2],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"global_model": np.zeros((3, 1), np.float32)}, "one flat vector"),
        ({"client_models": np.ones((2, 4), np.float32)}, r"shape \(K, 3\)"),
        ({"client_models": np.ones(3, np.float32)}, r"shape \(K, 3\)"),
        ({"client_models": np.ones((0, 3), np.float32), "num_examples": []}, "no clients"),
        ({"client_models": [], "num_examples": []}, "no clients"),
        (
            {"global_model": np.zeros(0), "client_models": np.zeros((2, 0))},
            "no parameters",
        ),
        ({"client_models": np.ones((2, 3), np.int64)}, "one floating dtype"),
        ({"client_models": np.ones((2, 3), np.float64)}, "float32 and float64"),
        ({"client_models": np.ones((2, 3), np.complex64)}, "one floating dtype"),
        ({"client_models": torch.ones(2, 3)}, "NumPy or torch"),
        ({"client_models": "models"}, "NumPy or torch"),
        ({"num_examples": [1, -2]}, "client 1 is -2"),
        ({"num_examples": [1, float("nan")]}, "client 1 is nan"),
        ({"num_examples": [0, 0]}, "0 for every client"),
        ({"num_examples": [1, 2, 3]}, "each of the 2 clients"),
        ({"clients": ["a", "a"]}, "'a' stands twice"),
        ({"clients": ["a"]}, "names 1 clients but client_models has 2"),
        ({"received": [1, 0]}, "one bool"),
        ({"received": [True]}, "one bool"),
        ({"global_model": None}, "global_model must be an array"),
        ({"global_model": [0.0, 0.0, 0.0]}, "global_model must be an array"),
        ({"client_models": [np.zeros(3, np.float32), torch.zeros(3)]}, "cannot be stacked"),
        ({"client_models": [np.zeros(3, np.float32), None]}, "must be an array"),
        ({"num_examples": ["many", "few"]}, "a number for each client"),
        ({"num_examples": [10**400, 1]}, "a number for each client"),
        ({"clients": 5}, "hashable names"),
        ({"clients": [["a"], ["b"]]}, "hashable names"),
        ({"layers": [0, 3]}, "cover the model"),
        ({"layers": 5}, "cover the model"),
        (
            {
                "global_model": np.zeros(3, ml_dtypes.bfloat16),
                "client_models": np.ones((2, 3), ml_dtypes.bfloat16),
            },
            "one floating dtype",
        ),
        ({"layers": [slice(0, 2)]}, "cover the model"),
        ({"layers": [slice(0, 1), slice(2, 3)]}, "cover the model"),
        ({"layers": [slice(0, 3), slice(3, 3)]}, "cover the model"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRound, match=message) as error:
        Round(**{**GOOD, **change})
    assert str(error.value).endswith("."), "one whole sentence"


def test_a_list_of_models_names_the_one_that_does_not_fit() -> None:
    models = [np.zeros(3, np.float32), np.zeros(4, np.float32)]
    with pytest.raises(InvalidClientModel, match="client 'b' does not have the global") as error:
        Round(GOOD["global_model"], models, [1, 1], clients=["a", "b"])
    assert error.value.clients == ("b",)


def test_a_list_of_models_is_a_matrix() -> None:
    rows = list(GOOD["client_models"])
    model, _ = FedAvg().aggregate(FedAvg().init(), Round(GOOD["global_model"], rows, [1, 2]))
    np.testing.assert_array_equal(model, np.ones(3))


def test_the_matrix_is_never_copied_when_lost_rows_hold_the_global_model() -> None:
    W = np.array([[1, 1, 1], [0, 0, 0]], np.float32)
    assert Round(GOOD["global_model"], W, [1, 1], received=[True, False]).client_models is W


def test_stale_rows_of_lost_uploads_are_not_believed() -> None:
    W = np.array([[1, 1, 1], [np.nan, 9, 9]], np.float32)
    asked = Round(GOOD["global_model"], W, [1, 1], received=[True, False])
    model, _ = FedAvg().aggregate(FedAvg().init(), asked)
    np.testing.assert_array_equal(model, 0.5)
    assert np.isnan(W[1, 0]), "the caller's matrix is left alone"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedHAW(None, 1e-3, 1e-2), "number eta > 0; got None"),  # type: ignore[arg-type]
        (lambda: FedHAW("x", 1e-3, 1e-2), "number eta > 0; got 'x'"),  # type: ignore[arg-type]
        (lambda: FedHAW(0.1, True, 1e-2), "eta_gamma"),
        (lambda: FedAdp(None), "alpha"),  # type: ignore[arg-type]
        (lambda: FedHyperG("a"), "lower > -1 and <= 0"),  # type: ignore[arg-type]
        (lambda: FedHyperG(lower=-1.0), "lower > -1"),
        (lambda: FedHyperG(upper=-0.1), "upper >= 0"),
        (lambda: FedLWS(beta=-1), "beta >= 0"),
        (lambda: FedLWS(clip=3), "clip="),  # type: ignore[arg-type]
        (lambda: FedLWS(clip=(1,)), "clip="),  # type: ignore[arg-type]
        (lambda: FedLWS(clip=(0.2, 0.1)), "clip"),
        (lambda: FedLAW(5), "callable"),  # type: ignore[arg-type]
        (lambda: FedLAW([]), "callable"),
        (lambda: FedLAW(abs, epochs=2.5), "epochs"),  # type: ignore[arg-type]
        (lambda: FedLAW(abs, lr=-1), "lr >= 0"),
        (lambda: FedLAW(abs, optimiser="rmsprop"), "optimisers"),  # type: ignore[arg-type]
    ],
)
def test_wrong_hyper_parameters(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidRule, match=message):
        make()


def test_fedlws_asks_for_layers() -> None:
    with pytest.raises(InvalidRound, match="layers="):
        FedLWS().aggregate(FedLWS().init(), Round(**GOOD))


def test_an_overflowing_sum_of_finite_models_is_told_from_a_bad_client() -> None:
    rule = FedHyperG(upper=4.0)
    big = np.full((2, 3), 3e38, np.float32)
    state = rule.init()
    _, state = rule.aggregate(state, Round(np.zeros(3, np.float32), big / 1e30, [1, 1]))
    with pytest.raises(InvalidRound, match="overflows"):
        rule.aggregate(state, Round(-big[0], big, [1, 1]))

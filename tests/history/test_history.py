"""The arrays of a history."""

import math

import numpy as np

from fedhaw.history import ClientFacts, History, RoundRecord, RunRecord

RUN = RunRecord(
    "mine",
    {"name": "fedavg"},
    seed=3,
    config={"rounds": 9},
    clients={"a": ClientFacts(30, (10, 20)), "b": ClientFacts(10, (5, 5))},
)


def test_what_was_measured_and_learnt_comes_by_name() -> None:
    history = History(
        RUN,
        [
            RoundRecord(0, metrics={"step": 1.5}),
            RoundRecord(
                1,
                evaluation={"accuracy": 0.5, "top2": 0.75},
                metrics={"my-number": 2.0, "list": (1.0, None), "mixed": 1.0},
            ),
            RoundRecord(2, metrics={"step": 0.5, "list": (3.0, 4.0, 5.0), "mixed": (7.0,)}),
        ],
    )
    nan = math.nan
    np.testing.assert_array_equal(history.evaluation["top2"], [nan, 0.75, nan])
    np.testing.assert_array_equal(history.accuracy, [nan, 0.5, nan])
    assert np.isnan(history.loss).all()
    assert set(history.metrics) == {"step", "my-number", "list", "mixed"}
    np.testing.assert_array_equal(history.metrics["step"], [1.5, nan, 0.5])
    np.testing.assert_array_equal(
        history.metrics["list"], [[nan, nan, nan], [1, nan, nan], [3, 4, 5]]
    )
    np.testing.assert_array_equal(history.metrics["mixed"], [[nan], [nan], [7]])
    assert repr(history) == "History('mine', 3 rounds, accuracy 0.5000)"


def test_clients_by_name() -> None:
    history = History(
        RUN,
        [
            RoundRecord(0, weights={"a": 1.0}, lost={"b": "uplink"}, client_accuracy={"b": 0.5}),
            RoundRecord(1, weights={"new": 0.25, "b": 0.75}),
        ],
    )
    nan = math.nan
    assert history.clients == ("a", "b", "new")
    np.testing.assert_array_equal(history.weights, [[1, nan, nan], [nan, 0.75, 0.25]])
    np.testing.assert_array_equal(history.client_accuracy[0], [nan, 0.5, nan])
    np.testing.assert_array_equal(history.shares, [0.75, 0.25, nan])
    assert history.lost.tolist() == [1, 0]
    assert history.label_counts is not None
    assert history.label_counts.tolist() == [[10, 20], [5, 5]]
    assert (history.name, history.rule, history.seed, history.rounds_planned) == (
        "mine", "fedavg", 3, 9,
    )  # fmt: skip


def test_ragged_labels_are_no_table() -> None:
    ragged = {"a": ClientFacts(1, (1,)), "b": ClientFacts(2, (1, 1))}
    assert History(RunRecord("x", {}, clients=ragged), []).label_counts is None
    assert History(RunRecord("x", {}), []).label_counts is None
    empty = History(RunRecord("x", {}), [])
    assert empty.weights.shape == (0, 0)
    assert empty.metrics == empty.evaluation == {}

"""What holds for every rule, on both backends."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import BACKENDS, LAYERS, RULES, Federation, reordered

import fedhaw
from fedhaw.rules import InvalidClientModel, InvalidRound, Round, Rule, pack_state

pytestmark = [
    pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys()),
    pytest.mark.parametrize("backend", BACKENDS),
]

seeds = st.integers(0, 2**16)
few = settings(max_examples=15, deadline=None)

REPLAYING = (fedhaw.FedHAWAuto, fedhaw.MIFA, fedhaw.FedVARP)
OVER_ARRIVALS = (
    fedhaw.FedAU,
    fedhaw.FedAvgArrivals,
    fedhaw.Krum,
    fedhaw.Median,
    fedhaw.MultiKrum,
    fedhaw.RFA,
    fedhaw.TrimmedMean,
)


def within(rule: Rule[Any]) -> Rule[Any]:
    return rule.rule if isinstance(rule, fedhaw.Clipped) else rule


def same_state(one: Any, other: Any) -> bool:
    (arrays, rest), (other_arrays, other_rest) = pack_state(one), pack_state(other)
    return rest == other_rest and all(
        arrays[name].tobytes() == other_arrays[name].tobytes() for name in arrays
    )


@few
@given(seed=seeds, clients=st.integers(1, 8))
def test_weights_are_a_distribution(rule: Rule[Any], backend: str, seed: int, clients: int) -> None:
    for _, model, state in Federation(clients, seed).rounds(rule, backend, 3):
        assert np.all(state.weights >= 0)
        assert state.weights.sum() == pytest.approx(1, abs=1e-12)
        assert len(state.weights) == len(state.clients) == clients
        assert np.isfinite(model).all()


@few
@given(seed=seeds, order=st.permutations(range(5)))
def test_order_of_clients_does_not_matter(
    rule: Rule[Any], backend: str, seed: int, order: list[int]
) -> None:
    *_, (_, _, state), (last, model, after) = Federation(5, seed).rounds(rule, backend, 3)
    shuffled, shuffled_after = rule.aggregate(state, reordered(last, np.array(order)))
    np.testing.assert_allclose(np.asarray(shuffled), model, rtol=1e-9, atol=1e-12)
    assert shuffled_after.clients == tuple(after.clients[k] for k in order)
    np.testing.assert_allclose(shuffled_after.weights, after.weights[order], rtol=1e-9)


def test_names_of_clients_do_not_matter(rule: Rule[Any], backend: str) -> None:
    federation = Federation(4, seed=3)
    original = list(federation.rounds(rule, backend, 3))
    federation.names = ("delta", "alpha", 17, "beta")
    for (_, model, state), (_, renamed, renamed_state) in zip(
        original, federation.rounds(rule, backend, 3), strict=True
    ):
        assert model.tobytes() == renamed.tobytes()
        assert state.weights.tobytes() == renamed_state.weights.tobytes()
        assert renamed_state.clients == federation.names


@few
@given(
    seed=seeds, lost=st.lists(st.booleans(), min_size=5, max_size=5).filter(lambda b: not all(b))
)
def test_a_lost_upload_is_the_global_model_sent_back(
    rule: Rule[Any], backend: str, seed: int, lost: list[bool]
) -> None:
    _, (last, _, state) = Federation(5, seed).rounds(rule, backend, 2)
    filled = BACKENDS[backend](np.asarray(last.client_models))
    for k in np.flatnonzero(lost):
        filled[int(k)] = last.global_model
    marked = replace(last, received=~np.array(lost))
    same = [marked, replace(marked, client_models=filled)]  # whatever stands in a lost client's row
    if not isinstance(within(rule), (*REPLAYING, *OVER_ARRIVALS)):
        same.append(replace(last, client_models=filled))
    (model, after), *others = (rule.aggregate(state, variant) for variant in same)
    for other, other_after in others:
        assert np.asarray(other).tobytes() == np.asarray(model).tobytes()
        assert same_state(other_after, after)


def test_nothing_arrived_changes_nothing(rule: Rule[Any], backend: str) -> None:
    _, (last, _, state) = Federation(5).rounds(rule, backend, 2)
    model, after = rule.aggregate(state, replace(last, received=np.zeros(5, bool)))
    assert np.asarray(model).tobytes() == np.asarray(last.global_model).tobytes()
    assert after is state
    assert model is not last.global_model


@few
@given(seed=seeds)
def test_aggregate_is_pure(rule: Rule[Any], backend: str, seed: int) -> None:
    _, (last, _, state) = Federation(4, seed).rounds(rule, backend, 2)
    inputs = [np.asarray(a).copy() for a in (last.global_model, last.client_models)]
    arrays, description = pack_state(state)
    arrays = {name: array.copy() for name, array in arrays.items()}
    first, first_state = rule.aggregate(state, last)
    second, second_state = rule.aggregate(state, last)
    assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
    assert same_state(first_state, second_state)
    np.testing.assert_array_equal(last.global_model, inputs[0])
    np.testing.assert_array_equal(last.client_models, inputs[1])
    assert pack_state(state)[1] == description
    for name, array in pack_state(state)[0].items():
        np.testing.assert_array_equal(array, arrays[name])


@few
@given(seed=seeds)
def test_float32_agrees_with_float64_on_badly_scaled_models(
    rule: Rule[Any], backend: str, seed: int
) -> None:
    to_backend = BACKENDS[backend]
    federation = Federation(6, seed, spread=1e-4)
    state32, state64 = rule.init(), rule.init()
    w = federation.start.astype(np.float32)
    for t in range(3):
        W = federation.client_models(w, t).astype(np.float32)
        rest: dict[str, Any] = {"num_examples": federation.num_examples, "layers": LAYERS}
        model32, state32 = rule.aggregate(state32, Round(to_backend(w), to_backend(W), **rest))
        w64, W64 = (to_backend(a.astype(np.float64)) for a in (w, W))
        model64, state64 = rule.aggregate(state64, Round(w64, W64, **rest))
        assert np.asarray(model32).dtype == np.float32
        # The adaptive rules make steps that are longer than some of these parameters.
        scale = np.abs(np.vstack([np.asarray(W64), np.asarray(model64)])).max(axis=0)
        # Adam divides the proxy's float32 gradient by its own size, and its rounding with it, as
        # the adaptive rules do with the mean update.
        rounded = getattr(rule, "optimiser", "") == "adam" or hasattr(rule, "tau")
        limit = 1e-5 if rounded else 1e-6
        assert np.max(np.abs(np.asarray(model32) - np.asarray(model64)) / scale) < limit
        w = np.asarray(model32)


def test_backends_agree(rule: Rule[Any], backend: str) -> None:
    reference = Federation(5, seed=8).rounds(rule, "numpy", 4)
    for (_, model, state), (_, expected, expected_state) in zip(
        Federation(5, seed=8).rounds(rule, backend, 4), reference, strict=True
    ):
        np.testing.assert_allclose(model, expected, rtol=1e-9)
        np.testing.assert_allclose(state.weights, expected_state.weights, rtol=1e-9)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_non_finite_model_is_refused_by_name(
    rule: Rule[Any], backend: str, poison: float
) -> None:
    _, (last, _, state) = Federation(5).rounds(rule, backend, 2)
    W = BACKENDS[backend](np.asarray(last.client_models))
    W[3, 11] = poison
    W[1, 0] = poison
    poisoned = replace(last, client_models=W)
    with pytest.raises(InvalidClientModel, match="'client-1', 'client-3' is not finite") as error:
        rule.aggregate(state, poisoned)
    assert error.value.clients == ("client-1", "client-3")

    received = np.array([True, False, True, False, True])
    expected, _ = rule.aggregate(state, replace(last, received=received))
    model, _, refused = fedhaw.aggregate_surviving(rule, state, poisoned)
    assert refused == {"client-1": "not finite", "client-3": "not finite"}
    assert np.asarray(model).tobytes() == np.asarray(expected).tobytes()


def test_a_client_without_data_has_no_weight(rule: Rule[Any], backend: str) -> None:
    federation = Federation(4)
    federation.num_examples = np.array([50, 0, 20, 0])
    for _, model, state in federation.rounds(rule, backend, 3):
        assert np.isfinite(model).all()
        if not isinstance(rule, fedhaw.FedHyperG) and getattr(rule, "start", "share") == "share":
            np.testing.assert_array_equal(state.weights[[1, 3]], 0)


def test_a_poisoned_client_without_data_is_refused_too(rule: Rule[Any], backend: str) -> None:
    federation = Federation(3)
    W = federation.client_models(federation.start, 0)
    W[1, 4] = np.nan
    to_backend = BACKENDS[backend]
    asked = Round(to_backend(federation.start), to_backend(W), [3, 0, 4], layers=LAYERS)
    with pytest.raises(InvalidClientModel, match="client 1"):
        rule.aggregate(rule.init(), asked)


def test_a_non_finite_global_model_is_named(rule: Rule[Any], backend: str) -> None:
    federation = Federation(2)
    w = federation.start.copy()
    w[2] = np.nan
    to_backend = BACKENDS[backend]
    asked = Round(
        to_backend(w), to_backend(np.stack([w, w])), [1, 1], received=[True, False], layers=LAYERS
    )
    with pytest.raises(InvalidRound):
        rule.aggregate(rule.init(), asked)


def test_clients_come_and_go(rule: Rule[Any], backend: str) -> None:
    federation, to_backend = Federation(6, seed=5), BACKENDS[backend]
    cohorts = ([0, 1, 2], [2, 1, 4], [5], [0, 5, 3, 2], [1, 3])
    state, w = rule.init(), federation.start
    for t, cohort in enumerate(cohorts):
        W = federation.client_models(w, t)[cohort]
        names = [federation.names[k] for k in cohort]
        asked = Round(
            to_backend(w), to_backend(W), federation.num_examples[cohort], None, names, LAYERS
        )
        model, state = rule.aggregate(state, asked)
        w = np.asarray(model)
        assert state.clients == tuple(names)
        assert state.weights.sum() == pytest.approx(1)
        assert np.isfinite(w).all()


def test_a_saved_state_goes_on_bit_for_bit(rule: Rule[Any], backend: str, tmp_path: Path) -> None:
    *_, (_, _, state), (last, model, after) = Federation(5, seed=2).rounds(rule, backend, 4)
    fedhaw.save_state(state, tmp_path / "state.safetensors")
    loaded = fedhaw.load_state(rule, tmp_path / "state.safetensors")
    assert same_state(loaded, state)
    resumed, resumed_after = rule.aggregate(loaded, last)
    assert np.asarray(resumed).tobytes() == model.tobytes()
    assert same_state(resumed_after, after)


def test_the_state_of_another_rule_is_refused(rule: Rule[Any], backend: str) -> None:
    (last, _, _), *_ = Federation(3).rounds(rule, backend, 1)
    if not type(rule).__module__.startswith("fedhaw."):
        return  # a rule of the docs, written as a user would
    nobody = replace(last, received=np.zeros(3, bool))
    for state in (SimpleNamespace(clients=(), weights=np.zeros(0), metrics={}), None):
        for current in (last, nobody):
            with pytest.raises(InvalidRound, match=r"was given a \w+ as its state, which is ano"):
                rule.aggregate(state, current)

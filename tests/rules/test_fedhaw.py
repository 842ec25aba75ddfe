"""FedHAW beside the letter: Algorithm 1 written out slowly, and what its options promise."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import BACKENDS, Federation

import fedhaw
from fedhaw.rules import InvalidRule, Round
from fedhaw.rules.stretch import IN_ONE_ROUND


def softmax(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(x) / np.exp(x).sum())


def algorithm_1(
    federation: Federation, rounds: int, eta: float, eta_gamma: float, eta_lambda: float, **how: Any
) -> list[tuple[np.ndarray, float, np.ndarray]]:
    """A line-by-line float64 transcription; one client after the other, nothing clever."""
    K = federation.clients
    N = federation.num_examples
    w, u = federation.start.astype(np.float64), np.zeros(())
    gamma, lam = 0.0, np.log(N / N.sum())
    if how.get("start") == "literal":
        lam = N / N.sum()
    out = []
    for t in range(rounds):
        w_k = federation.client_models(w, t).astype(np.float64)
        if t > 0:
            s = softmax(lam)
            d = w - sum(s[j] * w_k[j] for j in range(K))
            new_gamma = gamma - eta_gamma * np.exp(gamma) / eta * float(d @ w)
            used = new_gamma if how.get("gamma_in_lambda_step") == "sequential" else gamma
            mean_u = sum(s[j] * u[j] for j in range(K))
            for k in range(K):
                if how.get("jacobian") == "full":
                    dw = s[k] * (u[k] - mean_u)
                else:
                    dw = s[k] * (1 - s[k]) * u[k]
                lam[k] = lam[k] - eta_lambda * np.exp(2 * used) / eta * float(d @ dw)
            gamma = new_gamma
        s = softmax(lam)
        u = w_k
        w = np.exp(gamma) * sum(s[k] * w_k[k] for k in range(K))
        out.append((w, gamma, lam.copy()))
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"gamma_in_lambda_step": "sequential"},
        {"jacobian": "full"},
        {"start": "literal"},
        {"start": "literal", "jacobian": "full", "gamma_in_lambda_step": "sequential"},
    ],
    ids=lambda how: "-".join(how.values()) or "default",
)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16), clients=st.integers(1, 7))
def test_algorithm_1(how: dict[str, Any], backend: str, seed: int, clients: int) -> None:
    rates = (0.1, 1e-3, 1e-2)
    federation = Federation(clients, seed)
    expected = algorithm_1(federation, 6, *rates, **how)
    for (_, model, state), (w, gamma, lam) in zip(
        federation.rounds(fedhaw.FedHAW(*rates, **how), backend, 6), expected, strict=True
    ):
        np.testing.assert_allclose(model, w, rtol=1e-9, atol=1e-12)
        assert state.gamma == pytest.approx(gamma, rel=1e-9, abs=1e-13)
        np.testing.assert_allclose(state.lambdas, lam, rtol=1e-9)
        np.testing.assert_allclose(state.weights, softmax(lam), rtol=1e-9)


def test_round_0_is_fedavg() -> None:
    for seed in range(5):
        (_, ours, _), (_, fedavg, _) = (
            next(Federation(6, seed).rounds(rule, "numpy", 1))
            for rule in (fedhaw.FedHAW(0.1, 1.0, 1.0), fedhaw.FedAvg())
        )
        np.testing.assert_allclose(ours, fedavg, rtol=1e-14)


def test_meta_rates_of_0_give_fedavg() -> None:
    ours = Federation(6, 1).rounds(fedhaw.FedHAW(0.1, 0.0, 0.0), "numpy", 5)
    fedavg = Federation(6, 1).rounds(fedhaw.FedAvg(), "numpy", 5)
    for (_, model, _), (_, expected, _) in zip(ours, fedavg, strict=True):
        np.testing.assert_allclose(model, expected, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_full_jacobian_is_the_derivative(seed: int) -> None:
    """Autograd through w(gamma, lambda), with the direction estimate in the gradient's place."""
    rule = fedhaw.FedHAW(0.1, 1e-3, 1e-2, jacobian="full")
    *_, (_, _, state), (last, _, _) = Federation(5, seed).rounds(rule, "numpy", 3)
    _, after = rule.aggregate(state, last)
    to_gamma = (state.gamma - after.gamma) / rule.eta_gamma
    to_lambda = (state.lambdas - after.lambdas) / rule.eta_lambda

    s = state.weights
    d = last.global_model - s @ last.client_models
    gradient = torch.tensor(np.exp(state.gamma) * d / rule.eta)
    gamma = torch.tensor(state.gamma, dtype=torch.float64, requires_grad=True)
    lambdas = torch.tensor(state.lambdas, requires_grad=True)
    w = gamma.exp() * lambdas.softmax(0) @ torch.tensor(state.previous)
    np.testing.assert_allclose(w.detach().numpy(), last.global_model, rtol=1e-12)
    (gradient @ w).backward()  # type: ignore[no-untyped-call]
    assert gamma.grad is not None
    assert lambdas.grad is not None
    assert to_gamma == pytest.approx(gamma.grad.item(), rel=1e-9)
    np.testing.assert_allclose(to_lambda, lambdas.grad.numpy(), rtol=1e-8, atol=1e-14)


def test_learning_one_coefficient_leaves_the_other() -> None:
    federation = Federation(4, 2)
    *_, (_, _, gamma_only) = federation.rounds(
        fedhaw.FedHAW(0.1, 1e-3, 1e-2, learn="gamma"), "numpy", 4
    )
    *_, (_, _, lambda_only) = federation.rounds(
        fedhaw.FedHAW(0.1, 1e-3, 1e-2, learn="lambda"), "numpy", 4
    )
    shares = federation.num_examples / federation.num_examples.sum()
    assert gamma_only.gamma != 0
    np.testing.assert_allclose(gamma_only.weights, shares, rtol=1e-12)
    assert gamma_only.previous is None, "models that nobody will ask for are not kept"
    assert lambda_only.gamma == 0
    assert not np.allclose(lambda_only.weights, shares, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_previous_models_are_kept_without_a_copy_or_in_half_the_size(backend: str) -> None:
    for dtype, size in ((None, 4), ("float16", 2), ("bfloat16", 2)):
        rule = fedhaw.FedHAW(0.1, 1e-3, 1e-2, history_dtype=dtype)  # type: ignore[arg-type]
        federation = Federation(3, dtype=np.float32)
        ((asked, _, state),) = federation.rounds(rule, backend, 1)
        assert state.previous.itemsize == size
        assert (state.previous is asked.client_models) == (dtype is None)


def test_half_precision_history_changes_little() -> None:
    *_, (_, exact, _) = Federation(5, 3).rounds(fedhaw.FedHAW(0.1, 1e-3, 1e-2), "numpy", 5)
    for dtype, tolerance in (("float16", 1e-5), ("bfloat16", 1e-4)):
        rule = fedhaw.FedHAW(0.1, 1e-3, 1e-2, history_dtype=dtype)  # type: ignore[arg-type]
        *_, (_, model, _) = Federation(5, 3).rounds(rule, "numpy", 5)
        assert np.max(np.abs(model - exact)) < tolerance * np.abs(exact).max()


def cohort_round(federation: Federation, w: np.ndarray, t: int, cohort: list[int]) -> Round:
    names = [federation.names[k] for k in cohort]
    W = federation.client_models(w, t)[cohort]
    return Round(w, W, federation.num_examples[cohort], clients=names)


def test_sampling_sends_the_lambda_step_to_those_who_made_the_model() -> None:
    """Round 0: clients 0, 1, 2. Round 1: clients 2, 3. By hand from the rule's own words."""
    rule = fedhaw.FedHAW(0.1, 1e-3, 1e-2)
    federation = Federation(4, 7)
    N = federation.num_examples.astype(float)
    first = cohort_round(federation, federation.start, 0, [0, 1, 2])
    w, state = rule.aggregate(rule.init(), first)
    second = cohort_round(federation, w, 1, [2, 3])
    model, after = rule.aggregate(state, second)

    s_then = N[:3] / N[:3].sum()
    s_now = N[[2, 3]] / N[[2, 3]].sum()  # untouched so far, so the newcomer is at its share
    d = w - s_now @ second.client_models
    gamma = -1e-3 / 0.1 * float(d @ w)
    steps = 1e-2 / 0.1 * s_then * (1 - s_then) * (first.client_models @ d)
    assert after.gamma == pytest.approx(gamma, rel=1e-9)
    lambdas = np.log(N / N[:3].sum())
    lambdas[:3] -= steps
    for k in range(4):
        assert after.lambda_of[federation.names[k]] == pytest.approx(lambdas[k], rel=1e-9)
    expected = np.exp(gamma) * softmax(lambdas[[2, 3]]) @ second.client_models
    np.testing.assert_allclose(model, expected, rtol=1e-9)
    assert after.previous is second.client_models, "one cohort is kept, never all clients"


def test_a_newcomer_starts_at_its_share_however_far_the_others_have_drifted() -> None:
    rule = fedhaw.FedHAW(0.1, 0.0, 0.5)
    federation = Federation(4, 9)
    state, w = rule.init(), federation.start
    for t in range(5):
        w, state = rule.aggregate(state, cohort_round(federation, w, t, [0, 1, 2]))
    drifted = state.weights
    frozen = fedhaw.FedHAW(0.1, 0.0, 0.0)
    _, after = frozen.aggregate(state, cohort_round(federation, w, 5, [0, 1, 2, 3]))
    share = federation.num_examples[3] / federation.num_examples.sum()
    assert after.weights[3] == pytest.approx(share, rel=1e-9)
    np.testing.assert_allclose(after.weights[:3], drifted * (1 - share), rtol=1e-9)


def test_a_client_that_gets_data_later_joins_then() -> None:
    rule = fedhaw.FedHAW(0.1, 0.0, 0.0)
    federation = Federation(3, 4)
    W = federation.client_models(federation.start, 0)
    _, state = rule.aggregate(rule.init(), Round(federation.start, W, [10, 0, 30]))
    assert state.lambda_of[1] == -np.inf
    _, state = rule.aggregate(state, Round(federation.start, W, [10, 40, 30]))
    np.testing.assert_allclose(state.weights, np.array([10, 40, 30]) / 80)


@pytest.mark.parametrize("rates", [(1e6, 1e-2), (1e300, 1e300), (1e-3, 1e308)])
def test_an_exploding_step_is_not_taken_and_the_model_survives(
    rates: tuple[float, float],
) -> None:
    rule = fedhaw.FedHAW(1e-3, *rates)
    fedavg = Federation(4, 1).rounds(fedhaw.FedAvg(), "numpy", 5)
    for t, ((_, model, state), (_, expected, _)) in enumerate(
        zip(Federation(4, 1).rounds(rule, "numpy", 5), fedavg, strict=True)
    ):
        assert abs(state.gamma) <= np.log(IN_ONE_ROUND)
        assert np.isfinite(model).all()
        if t == 1:
            assert state.note is not None
            assert "stayed" in state.note
            np.testing.assert_allclose(model, expected, rtol=1e-12)


def test_no_note_when_all_is_well() -> None:
    for _, _, state in Federation(4).rounds(fedhaw.FedHAW(0.1, 1e-3, 1e-2), "numpy", 3):
        assert state.note is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta": 0.0}, "eta > 0"),
        ({"eta": float("nan")}, "eta > 0"),
        ({"eta_gamma": -1.0}, "eta_gamma"),
        ({"eta_lambda": float("inf")}, "eta_lambda"),
        ({"start": "shares"}, "one of 'share', 'literal'"),
        ({"history_dtype": "float8"}, "history_dtype"),
        ({"learn": "all"}, "'both', 'gamma', 'lambda'"),
        ({"guard": 1.0}, "guard > 1; got 1.0. None switches the guard off"),
        ({"guard": "off"}, "guard > 1; got 'off'"),
    ],
)
def test_wrong_hyper_parameters(arguments: dict[str, Any], message: str) -> None:
    rates = {"eta": 0.1, "eta_gamma": 1e-3, "eta_lambda": 1e-2}
    with pytest.raises(InvalidRule, match=message):
        fedhaw.FedHAW(**{**rates, **arguments})

"""Corners where a careless formula loses its digits, or a client without a say gains one."""

from typing import Any

import numpy as np
import pytest
import torch
from suite import BACKENDS, LAYERS, RULES, Federation, P

import fedhaw
from fedhaw.rules import Round, Rule


def both_precisions(rule: Rule[Any], W: np.ndarray, w: np.ndarray, examples: Any) -> Any:
    """The rule's results on the same numbers in float32 and in float64."""
    return [
        rule.aggregate(rule.init(), Round(w.astype(kind), W.astype(kind), examples, layers=LAYERS))
        for kind in (np.float32, np.float64)
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_fedlws_does_not_shrink_when_all_clients_agree(backend: str) -> None:
    random = np.random.default_rng(0)
    w = (0.05 * random.standard_normal(P)).astype(np.float32)
    W = np.stack([w + random.standard_normal(P).astype(np.float32)] * 5)
    W[:] = W[0]
    to_backend = BACKENDS[backend]
    asked = Round(to_backend(w), to_backend(W), range(1, 6), layers=LAYERS)
    _, state = fedhaw.FedLWS(beta=0.1).aggregate(fedhaw.FedLWS().init(), asked)
    np.testing.assert_allclose(state.gammas, 1, atol=1e-6)


@pytest.mark.parametrize("examples", [[500, 3], [7], [10_000, 5, 5]])
@pytest.mark.parametrize("name", ["fedadp", "fedlws", "fedhyper", "fedhaw"])
def test_a_client_that_is_nearly_everybody(name: str, examples: list[int]) -> None:
    for seed in range(10):
        random = np.random.default_rng(seed)
        w = random.standard_normal(P).astype(np.float32)
        W = (w + 0.1 * random.standard_normal((len(examples), P))).astype(np.float32)
        (single, state32), (double, state64) = both_precisions(RULES[name], W, w, examples)
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-6 * np.abs(w).max())
        if name == "fedadp":
            np.testing.assert_allclose(state32.angles, state64.angles, atol=1e-5)


def test_fedadp_of_one_received_client_is_at_angle_0() -> None:
    federation = Federation(2, dtype=np.float32)
    W = federation.client_models(federation.start, 0)
    asked = Round(federation.start, W, [200, 300], received=[True, False])
    _, state = fedhaw.FedAdp().aggregate(fedhaw.FedAdp().init(), asked)
    np.testing.assert_allclose(state.angles, [0, np.pi / 2], atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_without_data_cannot_steer_gamma(backend: str) -> None:
    to_backend = BACKENDS[backend]
    rule = fedhaw.FedHAW(0.1, 1e-3, 1e-2)
    federation = Federation(3, dtype=np.float32)
    gammas = []
    for loudness in (1, 1e4):
        state, w = rule.init(), federation.start
        for t in range(3):
            W = federation.client_models(w, t)
            W[2] *= loudness
            model, state = rule.aggregate(state, Round(to_backend(w), to_backend(W), [1, 2, 0]))
            w = np.asarray(model)
        gammas.append(state.gamma)
    assert gammas[0] != 0
    assert gammas[1] == pytest.approx(gammas[0], rel=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["fedadp", "fedlws", "fedlws-clipped", "fedhaw", "fedhyper"])
def test_updates_whose_squares_overflow_leave_a_finite_model(name: str, backend: str) -> None:
    """All models are finite; only their squares are not."""
    to_backend, rule = BACKENDS[backend], RULES[name]
    random = np.random.default_rng(1)
    w = random.standard_normal(P).astype(np.float32)
    state = rule.init()
    for _ in range(2):
        W = (1e21 * random.standard_normal((4, P))).astype(np.float32)
        model, state = rule.aggregate(
            state, Round(to_backend(w), to_backend(W), [1, 2, 3, 4], layers=LAYERS)
        )
        assert np.isfinite(np.asarray(model)).all()
        assert np.isfinite(state.weights).all()
    if "lws" in name:
        assert "FedAvg's average stayed" in state.note


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_half_precision_tensors(rule: Rule[Any]) -> None:
    """torch's bfloat16 models are averaged, in the precision they have."""
    federation = Federation(4)
    state, w = rule.init(), torch.tensor(federation.start).bfloat16()
    for t in range(2):
        W = torch.tensor(federation.client_models(w.double().numpy(), t)).bfloat16()
        w, state = rule.aggregate(state, Round(w, W, federation.num_examples, layers=LAYERS))
        assert w.dtype == torch.bfloat16
        assert torch.isfinite(w).all()


def test_a_model_does_not_remember_how_it_was_made() -> None:
    w = torch.ones(P, requires_grad=True)
    W = torch.stack([w * 2, w * 3])
    model, _ = fedhaw.FedAvg().aggregate(fedhaw.FedAvg().init(), Round(w, W, [1, 1]))
    assert not model.requires_grad


@pytest.mark.parametrize("there", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16"])
def test_a_state_moves_between_backends(there: str, dtype: Any) -> None:
    here = "torch" if there == "numpy" else "numpy"
    rule = fedhaw.FedHAW(0.1, 1e-3, 1e-2, history_dtype=dtype)
    *_, (_, _, state), (last, model, after) = Federation(4).rounds(rule, here, 3)
    to_there = BACKENDS[there]
    moved = Round(
        to_there(np.asarray(last.global_model)),
        to_there(np.asarray(last.client_models)),
        last.num_examples,
        clients=last.clients,
        layers=LAYERS,
    )
    other, other_after = rule.aggregate(state, moved)
    np.testing.assert_allclose(np.asarray(other), model, rtol=1e-12)
    assert other_after.gamma == pytest.approx(after.gamma, rel=1e-9)

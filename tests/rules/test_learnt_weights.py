"""FedAWA and L-DAWA against torch's own derivatives and cosines."""

import numpy as np
import pytest
import torch
from suite import BACKENDS, LAYERS, Federation

import fedhaw
from fedhaw.rules import Round
from fedhaw.rules.passes import angular_distances, gram

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def test_fedawa_takes_adams_first_step(backend: str) -> None:
    federation, rule = Federation(5, seed=2), fedhaw.FedAWA()
    T = torch.tensor(federation.num_examples / federation.num_examples.sum())
    w = federation.start
    for asked, model, state in federation.rounds(rule, backend, 4):
        W = torch.tensor(np.asarray(asked.client_models))
        sent, logits = torch.tensor(w), T.clone().requires_grad_()
        p, deltas = logits.softmax(0), W - sent
        cosines = torch.nn.functional.cosine_similarity(W, sent[None], dim=1)
        loss = (p * (1 - cosines)).sum() + (p * (deltas - p @ deltas).norm(dim=1)).sum()
        adam = torch.optim.Adam([logits], 1e-3, betas=(0.5, 0.999))
        loss.backward()
        adam.step()
        T = logits.detach()
        np.testing.assert_allclose(state.weights, T.softmax(0), rtol=1e-9)
        np.testing.assert_allclose(model, T.softmax(0) @ W, rtol=1e-9)
        w = model


def test_l_dawa(backend: str) -> None:
    federation, w = Federation(4, seed=3), Federation(4, seed=3).start
    for asked, model, state in federation.rounds(fedhaw.LDAWA(), backend, 3):
        W = np.asarray(asked.client_models)
        for index, layer in enumerate(LAYERS):
            lengths = np.linalg.norm(W[:, layer], axis=1) * np.linalg.norm(w[layer])
            cosines = W[:, layer] @ w[layer] / lengths
            np.testing.assert_allclose(model[layer], cosines @ W[:, layer] / 4, rtol=1e-10)
            assert state.metrics["cosine"][index] == pytest.approx(cosines.mean())
        w = model


def test_a_layer_of_zeros_can_begin_to_grow(backend: str) -> None:
    federation, to_backend = Federation(3), BACKENDS[backend]
    w = federation.start.copy()
    w[LAYERS[1]] = 0
    W = federation.client_models(w, 0)
    asked = Round(to_backend(w), to_backend(W), [1, 1, 1], layers=LAYERS)
    model, _ = fedhaw.LDAWA().aggregate(fedhaw.LDAWA().init(), asked)
    np.testing.assert_allclose(np.asarray(model)[LAYERS[1]], W[:, LAYERS[1]].mean(axis=0))


def test_l_dawa_asks_for_layers(backend: str) -> None:
    w = BACKENDS[backend](np.ones(3))
    with pytest.raises(fedhaw.InvalidRound, match="layer by layer"):
        fedhaw.LDAWA().aggregate(fedhaw.LDAWA().init(), Round(w, w[None], [1]))


@pytest.mark.parametrize("move", [1e-5, 1e-2, 1.0, -2.0, -1.0])
def test_inner_products_and_angles_keep_their_digits(backend: str, move: float) -> None:
    random, to_backend = np.random.default_rng(0), BACKENDS[backend]
    w = random.standard_normal(700).astype(np.float32)
    W = (w + move * w + 1e-2 * move * random.standard_normal((4, 700))).astype(np.float32)
    w64, W64 = w.astype(np.float64), W.astype(np.float64)
    g = W64 - w64
    inner, along, square = gram(to_backend(w), to_backend(W))
    np.testing.assert_allclose(inner, g @ g.T, rtol=1e-5)
    np.testing.assert_allclose(along, g @ w64, rtol=1e-5)
    assert square == pytest.approx(w64 @ w64, rel=1e-6)
    exact = angular_distances(np.diag(g @ g.T), g @ w64, float(w64 @ w64))
    turned = W64 / np.linalg.norm(W64, axis=1, keepdims=True) - w64 / np.linalg.norm(w64)
    np.testing.assert_allclose(exact, np.sum(turned**2, axis=1) / 2, rtol=1e-6)


def test_an_update_too_long_to_measure_leaves_the_weights(backend: str) -> None:
    federation, to_backend = Federation(3), BACKENDS[backend]
    W = federation.client_models(federation.start, 0)
    W[1] *= 1e200
    asked = Round(to_backend(federation.start), to_backend(W), [1, 1, 1], layers=LAYERS)
    model, state = fedhaw.FedAWA().aggregate(fedhaw.FedAWA().init(), asked)
    assert np.isfinite(np.asarray(model)).all()
    assert "weights stayed" in str(state.note)


def test_fedawa_gives_a_client_that_has_no_data_any_more_no_weight(backend: str) -> None:
    rule, random, to_backend = fedhaw.FedAWA(), np.random.default_rng(4), BACKENDS[backend]
    state, learnt = rule.init(), []
    for examples in ([10, 10, 10], [10, 10, 0], [10, 10, 10]):
        w = random.normal(size=20)
        W = w + random.normal(size=(3, 20))
        current = Round(to_backend(w), to_backend(W), examples)
        _, state = rule.aggregate(state, current)
        assert (state.weights > 0).tolist() == [number > 0 for number in examples]
        learnt.append(state.logit_of[2])
    assert learnt[0] == learnt[1] != learnt[2], "what was learnt of it stays, and goes on"

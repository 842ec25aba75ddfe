"""Rules that bad clients cannot lead astray, and clipping, written out slowly."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from suite import BACKENDS, LAYERS, Federation, P

import fedhaw
from fedhaw.rules import InvalidRule, Round, Rule
from fedhaw.rules.ranks import mean_of_ranks, network

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

ARRIVALS = [
    np.array(bits, bool)
    for bits in (
        [1, 1, 1, 1, 1, 1, 1],
        [1, 0, 1, 1, 0, 1, 1],
        [0, 1, 0, 1, 1, 1, 0],
        [0, 0, 1] * 2 + [0],
    )
]


def one_round(backend: str, arrived: np.ndarray, seed: int = 0) -> tuple[Round, np.ndarray]:
    """Seven clients, one of them far away, and (n, P) the models that arrived."""
    federation, to_backend = Federation(7, seed), BACKENDS[backend]
    W = federation.client_models(federation.start, 0)
    W[5] += 30
    asked = Round(
        to_backend(federation.start), to_backend(W), federation.num_examples, arrived, layers=LAYERS
    )
    return asked, W[arrived]


def result(rule: Rule[Any], asked: Round) -> tuple[np.ndarray, Any]:
    model, state = rule.aggregate(rule.init(), asked)
    return np.asarray(model), state


@pytest.mark.parametrize("arrived", ARRIVALS)
def test_median(backend: str, arrived: np.ndarray) -> None:
    asked, models = one_round(backend, arrived)
    model, state = result(fedhaw.Median(), asked)
    np.testing.assert_allclose(model, np.median(models, axis=0), rtol=1e-14)
    np.testing.assert_allclose(state.weights, arrived / arrived.sum())


@pytest.mark.parametrize("beta", [0.0, 0.2, 0.34, 0.49])
@pytest.mark.parametrize("arrived", ARRIVALS)
def test_trimmed_mean(backend: str, arrived: np.ndarray, beta: float) -> None:
    asked, models = one_round(backend, arrived)
    model, _ = result(fedhaw.TrimmedMean(beta), asked)
    cut, n = int(beta * len(models)), len(models)
    np.testing.assert_allclose(
        model, np.sort(models, axis=0)[cut : n - cut].mean(axis=0), rtol=1e-12
    )


def slow_scores(models: np.ndarray, f: int) -> np.ndarray:
    n = len(models)
    scores = []
    for k in range(n):
        apart = sorted(np.sum((models[k] - models[j]) ** 2) for j in range(n) if j != k)
        scores.append(sum(apart[: max(n - f - 2, 1)]))
    return np.array(scores)


@pytest.mark.parametrize("f", [0, 1, 2])
@pytest.mark.parametrize("arrived", ARRIVALS[:2])
def test_krum(backend: str, arrived: np.ndarray, f: int) -> None:
    asked, models = one_round(backend, arrived)
    ranking = np.lexsort((-asked.shares[arrived], slow_scores(models, f)))
    model, state = result(fedhaw.Krum(f), asked)
    np.testing.assert_array_equal(model, models[ranking[0]])
    assert state.weights[np.flatnonzero(arrived)[ranking[0]]] == 1
    for m in (None, 1, 3):
        model, state = result(fedhaw.MultiKrum(f, m), asked)
        chosen = ranking[: len(models) - f if m is None else m]
        np.testing.assert_allclose(model, models[chosen].mean(axis=0), rtol=1e-12)
        assert np.count_nonzero(state.weights) == len(chosen)


def test_krum_of_few_takes_the_one_with_more_data(backend: str) -> None:
    """Two clients are as far from each other; whichever comes first must not decide."""
    asked, _ = one_round(backend, np.array([1, 0, 1, 0, 0, 0, 0], bool))
    shares = asked.shares
    _, state = result(fedhaw.Krum(), asked)
    assert np.argmax(state.weights) == (0 if shares[0] > shares[2] else 2)
    _, state = result(fedhaw.MultiKrum(f=5), asked)
    assert np.count_nonzero(state.weights) == 1


@pytest.mark.parametrize("arrived", ARRIVALS)
def test_rfa(backend: str, arrived: np.ndarray) -> None:
    asked, models = one_round(backend, arrived)
    p = asked.shares[arrived] / asked.shares[arrived].sum()
    q = p
    for _ in range(4):
        pull = p / np.maximum(1e-6, np.linalg.norm(models - q @ models, axis=1))
        q = pull / pull.sum()
    model, state = result(fedhaw.RFA(), asked)
    np.testing.assert_allclose(model, q @ models, rtol=1e-9)
    np.testing.assert_allclose(state.weights[arrived], q, rtol=1e-7)
    np.testing.assert_array_equal(state.weights[~arrived], 0)


def test_rfa_with_many_passes_minimises_the_sum_of_distances(backend: str) -> None:
    asked, models = one_round(backend, ARRIVALS[0])
    p = asked.shares

    def distances(v: np.ndarray) -> float:
        return float(p @ np.linalg.norm(models - v, axis=1))

    best, _ = result(fedhaw.RFA(passes=200), asked)
    random = np.random.default_rng(0)
    for size in (1e-3, 1e-1):
        for _ in range(20):
            assert distances(best) <= distances(best + size * random.standard_normal(P)) + 1e-9
    assert distances(best) < distances(p @ models)


@pytest.mark.parametrize("factor", [100.0, -1e12, 1e30])
@pytest.mark.parametrize(
    "rule",
    [fedhaw.Median(), fedhaw.TrimmedMean(), fedhaw.Krum(), fedhaw.MultiKrum(), fedhaw.Clipped()],
    ids=lambda rule: type(rule).__name__,
)
def test_one_liar_does_not_lead_far(backend: str, rule: Rule[Any], factor: float) -> None:
    federation, to_backend = Federation(7, dtype=np.float32), BACKENDS[backend]
    w = federation.start
    W = federation.client_models(w, 0)
    honest = np.linalg.norm(np.delete(W, 2, axis=0) - w, axis=1)
    W[2] = w + np.float32(factor) * (W[2] - w)
    model, _ = result(rule, Round(to_backend(w), to_backend(W), federation.num_examples))
    assert np.linalg.norm(model - w) <= honest.max()


def test_rfa_leaves_out_what_cannot_be_measured(backend: str) -> None:
    federation, to_backend = Federation(5), BACKENDS[backend]
    w = federation.start
    W = federation.client_models(w, 0)
    W[2] *= 1e200
    asked = Round(to_backend(w), to_backend(W), federation.num_examples)
    without = replace(asked, received=np.array([True, True, False, True, True]))
    np.testing.assert_allclose(
        result(fedhaw.RFA(), asked)[0], result(fedhaw.RFA(), without)[0], rtol=1e-6
    )


@pytest.mark.parametrize("limit", [None, 0.2])
@pytest.mark.parametrize("arrived", ARRIVALS[:2])
def test_clipped(backend: str, arrived: np.ndarray, limit: float | None) -> None:
    asked, models = one_round(backend, arrived)
    w = np.asarray(asked.global_model)
    lengths = np.linalg.norm(models - w, axis=1)
    M = limit or np.median(lengths)
    shorter = np.tile(w, (7, 1))
    shorter[arrived] = w + (models - w) * np.minimum(1, M / lengths)[:, None]
    rules: list[Rule[Any]] = [fedhaw.FedAvg(), fedhaw.FedAvgM(), fedhaw.LDAWA()]
    for rule in rules:
        inside = replace(asked, client_models=BACKENDS[backend](shorter))
        expected, within = result(rule, inside)
        model, state = result(fedhaw.Clipped(rule, limit), asked)
        np.testing.assert_allclose(model, expected, rtol=1e-12)
        assert state.metrics["limit"] == pytest.approx(M)
        assert state.metrics["shortened"] == np.count_nonzero(lengths > M)
        assert dict(within.metrics).keys() <= dict(state.metrics).keys()


def test_clipping_leaves_short_updates_alone(backend: str) -> None:
    asked, _ = one_round(backend, ARRIVALS[0])
    model, state = result(fedhaw.Clipped(limit=1e6), asked)
    assert model.tobytes() == result(fedhaw.FedAvg(), asked)[0].tobytes()
    assert state.metrics["shortened"] == 0


def test_those_who_send_the_model_back_do_not_set_the_limit(backend: str) -> None:
    asked, _ = one_round(backend, ARRIVALS[0])
    W = BACKENDS[backend](np.asarray(asked.client_models))
    for k in range(5):
        W[k] = asked.global_model
    _, state = result(fedhaw.Clipped(), replace(asked, client_models=W))
    assert state.metrics["limit"] > 0
    for k in range(7):
        W[k] = asked.global_model
    model, state = result(fedhaw.Clipped(), replace(asked, client_models=W))
    np.testing.assert_allclose(model, np.asarray(asked.global_model))


@pytest.mark.parametrize("n", range(1, 18))
def test_the_network_ranks_every_order(backend: str, n: int) -> None:
    """A network that sorts all rows of zeros and ones sorts anything; here: the wanted ranks."""
    if n <= 10:
        columns = np.array([[bits >> k & 1 for bits in range(1 << n)] for k in range(n)])
    else:
        columns = np.random.default_rng(n).permuted(np.tile(np.arange(n), (4000, 1)), axis=1).T
    W = BACKENDS[backend](columns.astype(np.float32))
    ranked = np.sort(columns, axis=0)
    for first in range(n):
        for last in {first + 1, n - first} - set(range(first + 1)):
            mean = np.asarray(mean_of_ranks(W, range(n), first, last))
            np.testing.assert_allclose(mean, ranked[first:last].mean(axis=0), rtol=1e-5)
    assert len(network(n, n // 2, n // 2 + 1)) <= len(network(n, 0, n))


def test_options_out_of_range(backend: str) -> None:
    wrong: list[tuple[Any, dict[str, Any]]] = [
        (fedhaw.TrimmedMean, {"beta": 0.5}),
        (fedhaw.Krum, {"f": -1}),
        (fedhaw.Krum, {"f": 1.5}),
        (fedhaw.MultiKrum, {"m": 0}),
        (fedhaw.RFA, {"nu": 0}),
        (fedhaw.RFA, {"passes": 0}),
        (fedhaw.FedAvgM, {"beta": 1.0}),
        (fedhaw.FedAdam, {"tau": 0}),
        (fedhaw.FedYogi, {"beta_2": 1.0}),
        (fedhaw.FedAU, {"cap": 0}),
        (fedhaw.FedAWA, {"step": -1e-3}),
        (fedhaw.Clipped, {"limit": 0}),
        (fedhaw.Clipped, {"rule": "fedavg"}),
    ]
    for rule, options in wrong:
        with pytest.raises(InvalidRule, match=f"{rule.__name__} needs"):
            rule(**options)

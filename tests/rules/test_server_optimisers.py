"""FedAvgM, the adaptive rules, and those that make up for missing clients, written out slowly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from suite import BACKENDS, LAYERS, Federation, P

import fedhaw
from fedhaw.rules import Round, Rule

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

LOSSES = np.array(
    [[1, 1, 0, 1, 1], [0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0], [1, 0, 1, 1, 0]], bool
)
"""Which of five clients arrive in each of five rounds."""


@dataclass
class Seen:
    """One round of a federation with losses: what was sent, came back, and was made of it."""

    w: np.ndarray
    W: np.ndarray
    N: np.ndarray
    arrived: np.ndarray
    model: np.ndarray
    state: Any

    @property
    def deltas(self) -> np.ndarray:
        """(K, P) the updates, 0 where lost."""
        return np.asarray((self.W - self.w) * self.arrived[:, None])

    @property
    def delta(self) -> np.ndarray:
        """(P,) FedAvg's update."""
        return np.asarray(self.N / self.N.sum() @ self.deltas)


def lossy(rule: Rule[Any], backend: str) -> Iterator[Seen]:
    federation, to_backend = Federation(5, seed=4), BACKENDS[backend]
    N = federation.num_examples.astype(np.float64)
    state, w = rule.init(), federation.start
    for t, arrived in enumerate(LOSSES):
        W = federation.client_models(w, t)
        asked = Round(to_backend(w), to_backend(W), N, arrived, federation.names, LAYERS)
        model, state = rule.aggregate(state, asked)
        yield Seen(w, W, N, arrived, np.asarray(model), state)
        w = np.asarray(model)


def same(model: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(model, expected, rtol=1e-10, atol=1e-13)


def test_fedavgm(backend: str) -> None:
    v = np.zeros(P)
    for seen in lossy(fedhaw.FedAvgM(beta=0.7, eta_s=1.3), backend):
        v = 0.7 * v + seen.delta
        same(seen.model, seen.w + 1.3 * v)
        same(np.asarray(seen.state.velocity), v)


def test_fedavgm_without_momentum_is_fedavg(backend: str) -> None:
    average = Federation(4).rounds(fedhaw.FedAvg(), backend, 4)
    for (_, one, _), (_, other, _) in zip(
        Federation(4).rounds(fedhaw.FedAvgM(beta=0.0), backend, 4), average, strict=True
    ):
        same(one, other)


@pytest.mark.parametrize(
    ("rule", "beta_1", "second"),
    [
        (fedhaw.FedAdagrad(0.2, 0.01), 0.0, lambda v, d: v + d**2),
        (fedhaw.FedAdam(0.2, 0.8, 0.95, 0.01), 0.8, lambda v, d: 0.95 * v + 0.05 * d**2),
        (
            fedhaw.FedYogi(0.2, 0.8, 0.95, 0.01),
            0.8,
            lambda v, d: v - 0.05 * d**2 * np.sign(v - d**2),
        ),
    ],
)
def test_adaptive_steps(
    backend: str, rule: Rule[Any], beta_1: float, second: Callable[..., np.ndarray]
) -> None:
    m, v = np.zeros(P), np.full(P, 0.01**2)
    for seen in lossy(rule, backend):
        m = beta_1 * m + (1 - beta_1) * seen.delta
        v = second(v, seen.delta)
        same(seen.model, seen.w + 0.2 * m / (np.sqrt(v) + 0.01))


def test_fedavg_over_arrivals(backend: str) -> None:
    for seen in lossy(fedhaw.FedAvgArrivals(), backend):
        N = seen.N * seen.arrived
        same(seen.model, N @ seen.W / N.sum())
        same(seen.state.weights, N / N.sum())


def test_mifa(backend: str) -> None:
    G = np.zeros((5, P))
    for seen in lossy(fedhaw.MIFA(), backend):
        G = np.where(seen.arrived[:, None], seen.deltas, G)
        same(seen.model, seen.w + seen.N / seen.N.sum() @ G)


def test_fedvarp(backend: str) -> None:
    y = np.zeros((5, P))
    for seen in lossy(fedhaw.FedVARP(), backend):
        S = seen.arrived
        same(seen.model, seen.w + (seen.deltas - y)[S].mean(axis=0) + y.mean(axis=0))
        y = np.where(S[:, None], seen.deltas, y)


@pytest.mark.parametrize("cap", [50, 2])
def test_fedau(backend: str, cap: int) -> None:
    intervals: list[list[int]] = [[] for _ in range(5)]
    waiting = np.zeros(5, int)
    for seen in lossy(fedhaw.FedAU(cap), backend):
        omega = np.array([np.mean(past) if past else 1.0 for past in intervals])
        same(seen.model, seen.w + omega @ seen.deltas / 5)
        waiting += 1
        for k in range(5):
            if seen.arrived[k] or waiting[k] == cap:
                intervals[k].append(waiting[k])
                waiting[k] = 0
        means = np.array([np.mean(past) if past else 1.0 for past in intervals])
        assert seen.state.metrics["interval"] == pytest.approx(means.mean())


def test_what_is_remembered_follows_the_name(backend: str) -> None:
    """Sampled clients: MIFA uses everybody it ever heard, FedVARP and FedAU count them."""
    federation, to_backend = Federation(6, seed=1), BACKENDS[backend]
    cohorts = ([0, 1, 2], [3, 1], [4, 5, 0], [2, 3])
    N = federation.num_examples.astype(float)
    rules: list[Rule[Any]] = [fedhaw.MIFA(), fedhaw.FedVARP(), fedhaw.FedAU()]
    for rule in rules:
        state, w = rule.init(), federation.start
        G, heard = np.zeros((6, P)), np.zeros(6, bool)
        past: list[list[int]] = [[] for _ in range(6)]
        last = np.full(6, -1)
        for t, cohort in enumerate(cohorts):
            W = federation.client_models(w, t)
            names = [federation.names[k] for k in cohort]
            asked = Round(to_backend(w), to_backend(W[cohort]), N[cohort], clients=names)
            joining = [k for k in cohort if not heard[k]]
            heard[cohort] = True
            delta, n = W - w, np.count_nonzero(heard)
            omega = np.array([np.mean(of) if of else 1.0 for of in past])
            mean: dict[type, np.ndarray] = {
                fedhaw.FedVARP: (delta - G)[cohort].mean(axis=0) + G.sum(axis=0) / n,
                fedhaw.FedAU: omega[cohort] @ delta[cohort] / n,
            }
            G[cohort] = delta[cohort]
            mean[fedhaw.MIFA] = N @ G / N[heard].sum()
            model, state = rule.aggregate(state, asked)
            same(np.asarray(model), w + mean[type(rule)])
            last[joining] = t - 1
            for k in cohort:
                past[k].append(t - last[k])
            last[cohort] = t
            w = np.asarray(model)


def test_mifa_counts_data_that_changed(backend: str) -> None:
    federation, to_backend = Federation(3), BACKENDS[backend]
    rule, state, w = fedhaw.MIFA(), fedhaw.MIFA().init(), federation.start
    W = federation.client_models(w, 0)
    _, state = rule.aggregate(state, Round(to_backend(w), to_backend(W), [1, 2, 3]))
    G, after = W - w, federation.client_models(w, 1)
    asked = Round(to_backend(w), to_backend(after), [5, 1, 0], received=[True, False, False])
    model, state = rule.aggregate(state, asked)
    G[0] = after[0] - w
    same(np.asarray(model), w + np.array([5, 1, 0]) @ G / 6)


def test_nothing_of_a_replaced_update_is_left(backend: str) -> None:
    """An update a billion times too long does not leave its rounding behind."""
    federation, to_backend = Federation(3, dtype=np.float32), BACKENDS[backend]
    w = federation.start
    W = federation.client_models(w, 0)
    rules: list[Rule[Any]] = [fedhaw.MIFA(), fedhaw.FedVARP()]
    for rule in rules:
        state = rule.init()
        loud = W.copy()
        loud[1] *= 1e9
        _, state = rule.aggregate(state, Round(to_backend(w), to_backend(loud), [1, 1, 1]))
        for _ in range(2):
            model, state = rule.aggregate(state, Round(to_backend(w), to_backend(W), [1, 1, 1]))
        np.testing.assert_allclose(np.asarray(model), W.mean(axis=0), atol=1e-5)


def test_clients_without_data_are_not_counted(backend: str) -> None:
    """Whatever they send, the others' result is the same."""
    federation, to_backend = Federation(3), BACKENDS[backend]
    w = federation.start
    rules: list[Rule[Any]] = [
        fedhaw.FedVARP(),
        fedhaw.FedAU(),
        fedhaw.FedAvgArrivals(),
        fedhaw.LDAWA(),
        fedhaw.Median(),
        fedhaw.TrimmedMean(),
        fedhaw.MultiKrum(),
        fedhaw.RFA(),
    ]
    for rule in rules:
        W = federation.client_models(w, 0)
        with_them = Round(to_backend(w), to_backend(W), [2, 1, 0], layers=LAYERS)
        without = Round(to_backend(w), to_backend(W[:2]), [2, 1], layers=LAYERS)
        loud = replace(with_them, client_models=to_backend(W * np.array([[1], [1], [1e6]])))
        start = rule.init()
        expected = np.asarray(rule.aggregate(start, without)[0])
        same(np.asarray(rule.aggregate(start, with_them)[0]), expected)
        same(np.asarray(rule.aggregate(start, loud)[0]), expected)
        alone = replace(with_them, received=np.array([False, False, True]))
        same(np.asarray(rule.aggregate(start, alone)[0]), w)

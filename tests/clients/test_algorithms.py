"""SCAFFOLD, FedDyn and FedNova against transcriptions of their papers, and what each is for."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.clients import (
    SCAFFOLD,
    ClientAlgorithm,
    FedDyn,
    FedNova,
    InvalidUpdate,
    LocalUpdate,
    ReceivedUploads,
    Trainer,
    Vectors,
    client_generator,
    named,
)
from fedhaw.models import Layout

SEED = 3
Samples = tuple[Tensor, Tensor]
Array = NDArray[np.float64]


def squares(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs[:, 0] - labels).square().mean() / 2


class Federation:
    """Clients with losses (x w - y)^2 / 2, a server that averages, and the five functions."""

    def __init__(self, clients: Sequence[Samples], lost: frozenset[tuple[int, int]]) -> None:
        self.parts = torch.split(
            torch.arange(sum(len(y) for _, y in clients)), [len(y) for _, y in clients]
        )
        self.x = torch.cat([x for x, _ in clients])
        self.y = torch.cat([y for _, y in clients])
        self.lost = lost

    def play(self, algorithm: ClientAlgorithm, rounds: int) -> Tensor:
        module = nn.Linear(self.x.shape[1], 1, bias=False)
        layout = Layout.of(module)
        train = Trainer(module, layout, algorithm, self.x, self.y, SEED)
        w, n = torch.zeros(layout.size), np.array([float(len(own)) for own in self.parts])
        start = algorithm.init(layout.parameters)
        server, memories = start.server, [start.client for _ in n]
        for t in range(rounds):
            here = [k for k in range(len(n)) if (t, k) not in self.lost]
            models, up = {}, {}
            for k in here:
                down = algorithm.broadcast(server)
                result = train(t, k, self.parts[k], w, down, memories[k])
                models[k], up[k], memories[k] = result.model.clone(), result.up, result.memory
            arrived = list(models.values()), list(up.values()), n[here], len(n)
            scales = algorithm.scales(ReceivedUploads(here, w, *arrived))
            for k, scale in zip(here, [1.0] * len(here) if scales is None else scales, strict=True):
                models[k] = models[k] if scale == 1 else w + float(scale) * (models[k] - w)
            p = n / n.sum()
            mean = sum((float(p[k]) * models.get(k, w) for k in range(len(n))), torch.zeros(()))
            arrived = list(models.values()), list(up.values()), n[here], len(n)
            w, server = algorithm.absorb(server, ReceivedUploads(here, w, *arrived), mean)
        return w


def batches(own: Tensor, steps: LocalUpdate, k: int, t: int) -> list[Array]:
    generator = client_generator(SEED, k, t)
    orders = [own[torch.randperm(len(own), generator=generator)] for _ in range(steps.epochs)]
    return [chosen.numpy() for order in orders for chosen in torch.split(order, steps.batch)]


class Paper:
    """The same federation in float64, written from the papers."""

    def __init__(self, federation: Federation, steps: LocalUpdate) -> None:
        self.f, self.steps = federation, steps
        self.x, self.y = federation.x.double().numpy(), federation.y.double().numpy()
        self.n = np.array([float(len(own)) for own in federation.parts])
        self.p, self.N = self.n / self.n.sum(), len(self.n)

    def here(self, t: int) -> list[int]:
        return [k for k in range(self.N) if (t, k) not in self.f.lost]

    def gradients(self, k: int, t: int) -> list[tuple[Array, Array]]:
        return [(self.x[b], self.y[b]) for b in batches(self.f.parts[k], self.steps, k, t)]

    def slope(self, w: Array, x: Array, y: Array) -> Array:
        g: Array = x.T @ (x @ w - y) / len(y)
        return g

    def scaffold(self, rounds: int) -> Array:
        w = np.zeros(self.x.shape[1])
        c, own = np.zeros_like(w), [np.zeros_like(w) for _ in range(self.N)]
        for t in range(rounds):
            models, change = {}, np.zeros_like(w)
            for k in self.here(t):
                v, count = w.copy(), 0
                for x, y in self.gradients(k, t):
                    v, count = v - self.steps.eta * (self.slope(v, x, y) - own[k] + c), count + 1
                new = own[k] - c + (w - v) / (count * self.steps.eta)
                models[k], change, own[k] = v, change + new - own[k], new
            c = c + change / self.N
            w = sum((self.p[k] * models.get(k, w) for k in range(self.N)), np.zeros_like(w))
        return w

    def feddyn(self, rounds: int, alpha: float) -> Array:
        w = np.zeros(self.x.shape[1])
        h, own = np.zeros_like(w), [np.zeros_like(w) for _ in range(self.N)]
        for t in range(rounds):
            models, moved = {}, np.zeros_like(w)
            for k in self.here(t):
                v = w.copy()
                for x, y in self.gradients(k, t):
                    v = v - self.steps.eta * (self.slope(v, x, y) - own[k] + alpha * (v - w))
                models[k], moved = v, moved + v - w
                own[k] = own[k] - alpha * (v - w)
            h = h - alpha * moved / self.N
            mean = sum((self.p[k] * models.get(k, w) for k in range(self.N)), np.zeros_like(w))
            w = mean - h / alpha
        return w

    def fednova(self, rounds: int, rho: float) -> Array:
        w = np.zeros(self.x.shape[1])
        for t in range(rounds):
            here, total, tau = self.here(t), np.zeros_like(w), 0.0
            for k in here:
                v, velocity, weights = w.copy(), np.zeros_like(w), []
                for x, y in self.gradients(k, t):
                    velocity = rho * velocity + self.slope(v, x, y)
                    v = v - self.steps.eta * velocity
                count = len(self.gradients(k, t))
                weights = [(1 - rho ** (count - i)) / (1 - rho) for i in range(count)]
                a = sum(weights)
                tau += self.p[k] / sum(self.p[here]) * a
                total += self.p[k] * (v - w) / a
            w = w + tau * total
        return w


def quadratics(sizes: Sequence[int] = (12, 20, 7), d: int = 4) -> list[Samples]:
    numbers = np.random.default_rng(2)
    return [
        (
            torch.from_numpy(numbers.normal(size=(size, d)) * (1 + k)).float(),
            torch.from_numpy(numbers.normal(size=size) + 3 * k).float(),
        )
        for k, size in enumerate(sizes)
    ]


def optimum(clients: Sequence[Samples], shares: Sequence[float]) -> Array:
    """Where the gradient of the weighted mean of the clients' losses is 0."""
    parts = [(x.double().numpy(), y.double().numpy()) for x, y in clients]
    left = sum(p * x.T @ x / len(y) for p, (x, y) in zip(shares, parts, strict=True))
    right = sum(p * x.T @ y / len(y) for p, (x, y) in zip(shares, parts, strict=True))
    solved: Array = np.linalg.solve(left, right)
    return solved


STEPS = LocalUpdate(eta=0.01, epochs=2, batch=5, loss=squares)
LOST = frozenset({(1, 0), (3, 2), (4, 0), (4, 1)})


def test_scaffold_is_its_papers() -> None:
    federation = Federation(quadratics(), LOST)
    found = federation.play(SCAFFOLD(STEPS), 8)
    np.testing.assert_allclose(found, Paper(federation, STEPS).scaffold(8), rtol=2e-5, atol=2e-6)


def test_feddyn_is_its_papers() -> None:
    federation = Federation(quadratics(), LOST)
    found = federation.play(FedDyn(STEPS, alpha=0.3), 8)
    np.testing.assert_allclose(found, Paper(federation, STEPS).feddyn(8, 0.3), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_fednova_is_its_papers(momentum: float) -> None:
    federation, steps = Federation(quadratics(), LOST), replace(STEPS, momentum=momentum)
    found = federation.play(FedNova(steps), 8)
    expected = Paper(federation, steps).fednova(8, momentum)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_scaffold_and_feddyn_find_the_optimum_where_averaging_does_not() -> None:
    """Full batches, many steps, clients that pull apart: averaging stops elsewhere."""
    clients = quadratics((10, 10, 10), d=2)
    steps = LocalUpdate(eta=0.03, epochs=8, batch=10, loss=squares)
    federation, best = Federation(clients, frozenset()), optimum(clients, [1 / 3] * 3)
    averaged = np.abs(federation.play(steps, 40).numpy() - best).max()
    assert averaged > 0.05
    assert np.abs(federation.play(SCAFFOLD(steps), 20).numpy() - best).max() < 1e-2 * averaged
    assert np.abs(federation.play(FedDyn(steps, 2.0), 50).numpy() - best).max() < 1e-2 * averaged


def test_fednova_is_free_of_the_objectives_inconsistency() -> None:
    """Who makes more steps drags the average to its own optimum, but not FedNova's."""
    clients = [
        (torch.full((size, 1), slope), torch.full((size,), target))
        for size, slope, target in ((4, 1.0, 1.0), (12, 1.5, -2.0), (32, 0.7, 4.0))
    ]
    steps = LocalUpdate(eta=0.01, batch=4, loss=squares)
    federation, shares = Federation(clients, frozenset()), np.array([4, 12, 32]) / 48
    best = optimum(clients, shares.tolist())
    averaged = np.abs(federation.play(steps, 80).numpy() - best).max()
    assert averaged > 0.1
    assert np.abs(federation.play(FedNova(steps), 80).numpy() - best).max() < 0.1 * averaged


def test_without_their_corrections_all_are_federated_averaging() -> None:
    federation = Federation(quadratics((10, 10, 10)), LOST)
    plain = federation.play(STEPS, 6)
    assert torch.equal(federation.play(FedDyn(STEPS, alpha=0.0), 6), plain)
    assert torch.equal(federation.play(FedNova(STEPS), 6), plain)  # all make the same steps
    first = federation.play(STEPS, 1)
    assert torch.equal(federation.play(SCAFFOLD(STEPS), 1), first)  # every c is still 0


def test_a_step_with_everything_is_torchs() -> None:
    """Momentum, clipping, weight decay and a decaying rate, against torch.optim."""
    torch.manual_seed(0)
    x, y = torch.randn(24, 3), torch.randn(24) * 9
    steps = LocalUpdate(
        eta=0.1, epochs=2, batch=8, momentum=0.7, clip=0.8, weight_decay=0.05, eta_decay=0.5,
        loss=squares,
    )  # fmt: skip
    module = nn.Linear(3, 1, bias=False)
    layout, start = Layout.of(module), Layout.of(module).flatten(module)
    found = Trainer(module, layout, steps, x, y, SEED)(3, 1, torch.arange(24), start).model
    optimiser = torch.optim.SGD(
        module.parameters(), lr=0.1 * 0.5**3, momentum=0.7, weight_decay=0.05
    )
    for chosen in batches(torch.arange(24), steps, 1, 3):
        optimiser.zero_grad()
        squares(module(x[chosen]), y[chosen]).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), 0.8)
        optimiser.step()
    torch.testing.assert_close(found, layout.flatten(module), rtol=1e-5, atol=1e-6)


def test_the_way_of_a_constant_gradient() -> None:
    """FedNova's a_k, which its authors give in closed form for each case."""
    rho, mu, tau = 0.8, 0.5, 7
    geometric = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    assert LocalUpdate(momentum=rho).travelled(tau) == pytest.approx(geometric)
    held = (1 - (1 - 0.1 * mu) ** tau) / (0.1 * mu)
    assert LocalUpdate(eta=0.1, proximal=mu).travelled(tau) == pytest.approx(held)
    assert LocalUpdate().travelled(tau) == tau


def test_algorithms_by_name() -> None:
    assert named("scaffold", eta=0.1) == SCAFFOLD(LocalUpdate(eta=0.1))
    assert named("feddyn+adam", feddyn_alpha=0.5) == FedDyn(LocalUpdate("adam"), 0.5)
    both = LocalUpdate(proximal=0.2, weight_decay=1e-4)
    assert named("fednova+fedprox+sgd-wd", mu=0.2) == FedNova(both)
    for wrong in ("scaffold+feddyn", "scaffold+scaffold", "fednova+moon"):
        with pytest.raises(InvalidUpdate, match="no client update named"):
            named(wrong)
    for wrong in ("scaffold+adam", "fednova+adam"):
        with pytest.raises(InvalidUpdate, match="steps of SGD"):
            named(wrong)
    with pytest.raises(InvalidUpdate, match="alpha"):
        named("feddyn", feddyn_alpha=-1.0)


def test_memories_are_what_init_declares() -> None:
    for algorithm in (SCAFFOLD(STEPS), FedDyn(STEPS), FedNova(STEPS)):
        start = algorithm.init(5)
        every: list[Vectors] = [start.server, start.client, start.up]
        assert all(not bool(v.any()) for vectors in every for v in vectors.values())

"""One client's training against torch.optim, step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.clients import LocalUpdate, Trainer, client_generator, client_seed, named
from fedhaw.models import Layout, mlp

SEED, CLIENT, ROUND = 3, 5, 7


class Wrapped(nn.Module):
    """A perceptron that is not recognised as one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


def data() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 12, generator=generator)
    y = torch.randint(0, 5, (90,), generator=generator)
    return x, y, torch.arange(10, 80)


def by_torch_optim(
    module: nn.Module, update: LocalUpdate, x: Tensor, y: Tensor, rows: Tensor
) -> tuple[nn.Module, float]:
    """The plain way, from the definition."""
    settings: dict[str, Any] = {"lr": update.eta, "weight_decay": update.weight_decay}
    optimiser: torch.optim.Optimizer = torch.optim.SGD(module.parameters(), **settings)
    if update.optimiser == "adam":
        optimiser = torch.optim.Adam(module.parameters(), **settings)
    start = [parameter.detach().clone() for parameter in module.parameters()]
    generator = client_generator(SEED, CLIENT, ROUND)
    losses = []
    for _ in range(update.epochs):
        order = rows[torch.randperm(len(rows), generator=generator)]
        for chosen in torch.split(order, update.batch):
            loss = cross_entropy(module(x[chosen]), y[chosen])
            losses.append(loss.item() * len(chosen))
            for parameter, anchor in zip(module.parameters(), start, strict=True):
                loss = loss + update.proximal / 2 * (parameter - anchor).square().sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return module, sum(losses) / (update.epochs * len(rows))


@pytest.mark.parametrize("wrap", [lambda module: module, Wrapped], ids=["closed form", "autograd"])
@pytest.mark.parametrize(
    "update",
    [
        named("sgd", eta=0.1, epochs=3, batch=16),
        named("sgd-wd", eta=0.1, epochs=3, batch=16, weight_decay=0.1),
        named("adam", eta=0.01, epochs=3, batch=16),
        named("fedprox", eta=0.1, epochs=3, batch=16, mu=0.5),
        named("fedprox+adam", eta=0.01, epochs=3, batch=16, mu=0.5),
        named("fedprox+sgd-wd", eta=0.1, epochs=3, batch=16, weight_decay=0.1, mu=0.5),
        named("sgd", eta=0.1, batch=1000),
    ],
    ids=lambda update: update.optimiser,
)
def test_training_matches_torch_optim(
    update: LocalUpdate, wrap: Callable[[nn.Module], nn.Module]
) -> None:
    torch.manual_seed(1)
    module = wrap(mlp((12, 8, 8, 5)))
    layout = Layout.of(module)
    x, y, rows = data()
    train = Trainer(module, layout, update, x, y, SEED)
    start = layout.flatten(module)
    train(0, 0, rows[:9], start)  # an earlier client must leave nothing behind
    result = train(ROUND, CLIENT, rows, start)
    loss, model = result.loss, result.model
    expected, expected_loss = by_torch_optim(module, update, x, y, rows)
    torch.testing.assert_close(model, layout.flatten(expected), rtol=2e-5, atol=2e-6)
    assert loss == pytest.approx(expected_loss, rel=1e-5)


def test_weak_regularisers_are_not_rounded_away() -> None:
    """eta x weight_decay of 1e-7 is below half a unit in the last place of 1."""
    module = mlp((2, 2))
    layout = Layout.of(module)
    x, y = torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)
    update = LocalUpdate(eta=1e-3, weight_decay=1e-4, epochs=2000, batch=1)
    start = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0]) / 512
    model = Trainer(module, layout, update, x, y, 0)(0, 0, torch.tensor([0]), start).model
    assert (1 - model[0] / start[0]).item() == pytest.approx(2e-4, rel=0.3)


def test_only_seed_client_and_round_decide() -> None:
    seeds = {client_seed(s, c, r) for s in range(4) for c in range(4) for r in range(4)}
    assert len(seeds) == 64


@given(*[st.integers(0, 2**64) | st.sampled_from([2**32 - 1, 2**32])] * 3)
def test_seeds_are_numpys(seed: int, client: int, round_index: int) -> None:
    """Whatever is quicker must give the runs of every earlier version."""
    words = np.random.SeedSequence((seed, client, round_index)).generate_state(1, np.uint64)
    assert client_seed(seed, client, round_index) == int(words[0]) >> 1


def test_a_users_own_function() -> None:
    module = mlp((12, 5))
    layout = Layout.of(module)
    x, y, rows = data()
    seen: dict[str, Any] = {}

    def update(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
        seen["shape"] = (tuple(x.shape), tuple(y.shape), module.training)
        seen["draws"] = (torch.rand(1, generator=generator), torch.rand(1))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(1)
        # Even a parameter that is replaced outright counts.
        module[1].bias = nn.Parameter(torch.full((5,), 9.0))  # type: ignore[index]
        return 0.25

    train = Trainer(module, layout, update, x, y, SEED)
    start = layout.flatten(module)
    result = train(ROUND, CLIENT, rows, start)
    loss, model = result.loss, result.model
    assert loss == 0.25
    assert seen["shape"] == (((70, 12), (70,), True))
    torch.testing.assert_close(model[:60], start[:60] + 1)
    assert bool((model[60:] == 9).all())
    first, draws = model.clone(), seen["draws"]
    assert torch.equal(train(ROUND, CLIENT, rows, start).model, first)
    assert torch.equal(torch.cat(seen["draws"]), torch.cat(draws))


def test_dropout_draws_from_the_clients_own_randomness() -> None:
    module = nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 5))
    layout = Layout.of(module)
    x, y, rows = data()
    train = Trainer(module, layout, LocalUpdate(eta=0.1, batch=8), x, y, SEED)
    start = layout.flatten(module)
    first = train(ROUND, CLIENT, rows, start).model.clone()
    other = train(ROUND, CLIENT + 1, rows, start).model.clone()
    again = train(ROUND, CLIENT, rows, start).model
    assert torch.equal(first, again)
    assert not torch.equal(first, other)

"""The proxy loss, and FedLAW's golden round computed with nothing else."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedhaw.models import Layout, mlp, proxy_loss
from fedhaw.rules import FedLAW, Round

GOLDEN = Path(__file__).parents[1] / "golden"


def test_batches_come_in_order_with_a_smaller_last_one() -> None:
    module = mlp((3, 4, 2))
    x, y = torch.randn(10, 3), torch.randint(0, 2, (10,))
    model = Layout.of(module).flatten(module)
    losses = [loss(model)[0] for loss in proxy_loss(module, cross_entropy, x, y, batch=4)]
    expected = [
        cross_entropy(module(a), b).item()
        for a, b in zip(torch.split(x, 4), torch.split(y, 4), strict=True)
    ]
    assert losses == pytest.approx(expected)


def test_numpy_models_get_numpy_gradients() -> None:
    module = mlp((3, 2))
    (loss,) = proxy_loss(module, cross_entropy, torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))
    _, gradient = loss(Layout.of(module).flatten(module).numpy())
    assert isinstance(gradient, np.ndarray)
    assert gradient.shape == (8,)


@pytest.mark.parametrize("buffers", ["batch", "average"])
def test_batch_norm_uses_batch_statistics_and_dropout_is_off(buffers: str) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    layout = Layout.of(module, buffers)  # type: ignore[arg-type]
    x, y = torch.randn(16, 3), torch.randint(0, 2, (16,))
    (loss,) = proxy_loss(module, cross_entropy, x, y, layout=layout)
    model = layout.flatten(module)
    value, gradient = loss(model)
    module[2].eval()
    expected = cross_entropy(module(x), y)
    expected.backward()  # type: ignore[no-untyped-call]
    assert value == pytest.approx(expected.item(), rel=1e-5)
    weight = gradient[:12].view(4, 3)
    torch.testing.assert_close(weight, module[0].weight.grad, rtol=1e-4, atol=1e-6)
    assert bool((gradient[layout.parameters :] == 0).all())
    assert loss(model)[0] == value


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_golden_fedlaw_round(name: str) -> None:
    golden = np.load(GOLDEN / f"fedlaw_{name}.npz", allow_pickle=False)
    module = mlp(golden["sizes"].tolist())
    batches = proxy_loss(
        module,
        cross_entropy,
        torch.from_numpy(golden["proxy_x"]),
        torch.from_numpy(golden["proxy_y"]),
        batch=int(golden["batch"]),
    )
    W = torch.from_numpy(golden["client_models"])
    shares = torch.from_numpy(golden["num_examples"] / golden["num_examples"].sum())
    gamma = torch.zeros((), dtype=torch.float64, requires_grad=True)
    lambdas = shares.log().requires_grad_()
    settings = {"params": [gamma, lambdas], "lr": float(golden["lr"])}
    optimiser: torch.optim.Optimizer = torch.optim.SGD([settings])
    if name == "adam":
        optimiser = torch.optim.Adam([settings], betas=(0.5, 0.999))
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 20, 0.5 if name == "adam" else 1.0)
    for _ in range(int(golden["epochs"])):
        for batch in batches:
            model = (gamma.exp() * (lambdas.softmax(0) @ W.double())).float()
            _, gradient = batch(model.detach())
            optimiser.zero_grad()
            model.backward(gradient)  # type: ignore[no-untyped-call]
            optimiser.step()
        schedule.step()
    assert gamma.item() == pytest.approx(float(golden["gamma"]), rel=1e-4)
    np.testing.assert_allclose(lambdas.detach(), golden["lambdas"], rtol=1e-4)


def test_a_lone_last_proxy_sample_joins_the_batch_before_it() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    x, y = torch.randn(9, 3), torch.randint(0, 2, (9,))
    losses = proxy_loss(module, cross_entropy, x, y, batch=4)
    model = Layout.of(module).flatten(module)
    expected = [cross_entropy(module(x[a:b]), y[a:b]).item() for a, b in ((0, 4), (4, 9))]
    assert [loss(model)[0] for loss in losses] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sizes", [(6, 2), (6, 5, 3), (6, 5, 4, 3)])
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_the_short_way_along_sums_of_models_leads_to_the_same_place(
    sizes: tuple[int, ...], kind: str
) -> None:
    generator = torch.Generator().manual_seed(1)
    module = mlp(sizes)
    x = torch.randn(20, 6, generator=generator)
    y = torch.randint(0, sizes[-1], (20,), generator=generator)
    W: Any = torch.randn(4, Layout.of(module).size, generator=generator)
    W = W if kind == "torch" else W.numpy()
    batches = proxy_loss(module, cross_entropy, x, y, batch=8)
    the_long_way = [partial(batch) for batch in batches]  # which knows no other
    current = Round(W[0], W, np.array([10.0, 20, 30, 40]))
    ends = []
    for proxy in (batches, the_long_way):
        rule = FedLAW(proxy, epochs=30, lr=0.05)
        ends.append(rule.aggregate(rule.init(), current)[1])
    assert abs(ends[0].gamma) > 0.01
    assert ends[0].gamma == pytest.approx(ends[1].gamma, rel=1e-4)
    np.testing.assert_allclose(ends[0].lambdas, ends[1].lambdas, rtol=1e-4)

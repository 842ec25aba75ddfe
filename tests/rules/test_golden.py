"""The rules against the outputs of the letter authors' published functions."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from suite import BACKENDS

import fedhaw
from fedhaw.rules import Round, Rule

GOLDEN = Path(__file__).parents[1] / "golden"


def assert_models_agree(ours: Any, golden: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours), golden, rtol=1e-5, atol=1e-7)


def assert_coefficients_agree(ours: Any, golden: Any) -> None:
    np.testing.assert_allclose(ours, golden, rtol=1e-4, atol=1e-7)


def rule_of(name: str, golden: dict[str, Any]) -> Rule[Any]:
    rules: dict[str, Rule[Any]] = {
        "fedavg": fedhaw.FedAvg(),
        "fedadp": fedhaw.FedAdp(alpha=float(golden["fedadp_alpha"])),
        "fedhyper": fedhaw.FedHyperG(),
        "fedlws": fedhaw.FedLWS(beta=float(golden["fedlws_beta"])),
        "fedhaw": fedhaw.FedHAW(
            eta=float(golden["eta"]),
            eta_gamma=float(golden["eta_gamma"]),
            eta_lambda=float(golden["eta_lambda"]),
            gamma_in_lambda_step="sequential",
        ),
    }
    return rules[name]


def coefficients_of(name: str, state: Any) -> dict[str, Any]:
    """Our names for what the golden files hold beside the models."""
    names = {
        "fedadp": {"angle": "angles"},
        "fedhyper": {"scale": "step"},
        "fedlws": {"gamma": "gammas"},
        "fedhaw": {"gamma": "gamma", "lambda": "lambdas"},
    }
    return {key: getattr(state, ours) for key, ours in names.get(name, {}).items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["fedavg", "fedadp", "fedhyper", "fedlws", "fedhaw"])
@pytest.mark.parametrize("file", ["a", "b", "c"])
def test_consecutive_rounds(file: str, name: str, backend: str) -> None:
    golden = np.load(GOLDEN / f"{file}.npz", allow_pickle=False)
    ends = np.cumsum(golden["layer_sizes"])
    layers = [slice(int(e - n), int(e)) for e, n in zip(ends, golden["layer_sizes"], strict=True)]
    rule, to_backend = rule_of(name, golden), BACKENDS[backend]
    state, w = rule.init(), to_backend(golden["w0"])
    for r, W in enumerate(golden[f"{name}_clients"]):
        received = ~golden["lost"][r]
        asked = Round(w, to_backend(W), golden["num_examples"], received=received, layers=layers)
        w, state = rule.aggregate(state, asked)
        assert_models_agree(w, golden[f"{name}_global"][r])
        for key, ours in coefficients_of(name, state).items():
            assert_coefficients_agree(ours, golden[f"{name}_{key}"][r])


def mlp_losses(golden: Any) -> list[Any]:
    """The proxy losses of an MLP written out over the flat vector, by automatic differentiation."""
    sizes = golden["sizes"].tolist()
    x, y = torch.tensor(golden["proxy_x"]), torch.tensor(golden["proxy_y"])

    def loss_at(model: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        at = 0
        for fan_in, fan_out in pairwise(sizes):
            weight = model[at : at + fan_in * fan_out].reshape(fan_out, fan_in)
            at += fan_in * fan_out
            x = x @ weight.T + model[at : at + fan_out]
            at += fan_out
            x = x.relu() if at < len(model) else x
        return torch.nn.functional.cross_entropy(x, y)

    def proxy_of(x: torch.Tensor, y: torch.Tensor) -> Any:
        def proxy(model: Any) -> tuple[float, Any]:
            at = torch.as_tensor(model).clone().requires_grad_()
            loss = loss_at(at, x, y)
            loss.backward()  # type: ignore[no-untyped-call]
            assert at.grad is not None
            return loss.item(), at.grad if isinstance(model, torch.Tensor) else at.grad.numpy()

        return proxy

    batch = int(golden["batch"])
    starts = range(0, len(y), batch)
    return [proxy_of(x[a : a + batch], y[a : a + batch]) for a in starts]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_fedlaw(optimiser: Any, backend: str) -> None:
    golden = np.load(GOLDEN / f"fedlaw_{optimiser}.npz", allow_pickle=False)
    rule = fedhaw.FedLAW(
        mlp_losses(golden), int(golden["epochs"]), float(golden["lr"]), optimiser=optimiser
    )
    to_backend = BACKENDS[backend]
    asked = Round(
        to_backend(golden["global_model"]),
        to_backend(golden["client_models"]),
        golden["num_examples"],
    )
    model, state = rule.aggregate(rule.init(), asked)
    assert_models_agree(model, golden["new_global"])
    assert_coefficients_agree(state.gamma, golden["gamma"])
    assert_coefficients_agree(state.lambdas, golden["lambdas"])

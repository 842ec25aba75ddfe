"""The rules under the common suite, and made-up federations to run them on.

Every rule of the registry is here, with its defaults; one that has none, and variants worth a test
of their own, by a line in `RULES`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedhaw
from fedhaw.rules import Round, Rule, registry
from fedhaw.rules.base import Client

LAYERS = (slice(0, 7), slice(7, 20), slice(20, 31))
P = LAYERS[-1].stop


def quadratic_proxy(model: Any) -> tuple[float, Any]:
    """|model - target|^2 / 2P and its gradient, for either backend."""
    offset = model - fedhaw.rules.passes.like(model, np.linspace(-1, 1, model.shape[0]))
    return float(offset @ offset) / (2 * model.shape[0]), offset / model.shape[0]


RULES: dict[str, Rule[Any]] = {
    "fedlaw": fedhaw.FedLAW(proxy=quadratic_proxy, epochs=5),
    "fedhaw": fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-2),
}
RULES |= {name: entry.cls() for name, entry in registry.RULES.items() if name not in RULES}
RULES |= {
    "fedlws-clipped": fedhaw.FedLWS(beta=0.03, clip=(0.01, 0.2)),
    "fedlaw-adam": fedhaw.FedLAW(proxy=[quadratic_proxy] * 2, epochs=5, optimiser="adam"),
    "fedhaw-sequential": fedhaw.FedHAW(0.1, 1e-3, 1e-2, gamma_in_lambda_step="sequential"),
    "fedhaw-full": fedhaw.FedHAW(0.1, 1e-3, 1e-2, jacobian="full"),
    "fedhaw-literal": fedhaw.FedHAW(0.1, 1e-3, 1e-2, start="literal"),
    "fedhaw-gamma": fedhaw.FedHAW(0.1, 1e-3, 1e-2, learn="gamma"),
    "fedhaw-lambda": fedhaw.FedHAW(0.1, 1e-3, 1e-2, learn="lambda"),
    "fedhaw-bfloat16": fedhaw.FedHAW(0.1, 1e-3, 1e-2, history_dtype="bfloat16"),
    "fedhaw-float16": fedhaw.FedHAW(0.1, 1e-3, 1e-2, history_dtype="float16"),
    "clipped-fedhaw": fedhaw.Clipped(fedhaw.FedHAW(0.1, 1e-3, 1e-2), limit=0.3),
    "clipped-mifa": fedhaw.Clipped(fedhaw.MIFA()),
}


def rule_of_the_docs() -> Rule[Any]:
    """FedExP, as docs/adding-a-rule.md writes it."""
    page = Path(__file__).parents[2] / "docs" / "adding-a-rule.md"
    (code,) = re.findall(r"```python\n(from dataclasses.*?)```", page.read_text(), re.DOTALL)
    module: dict[str, Any] = {"__name__": "fedexp"}
    exec(compile(code, page, "exec"), module)
    rule: Rule[Any] = module["FedExP"]()
    return rule


def formulas_of_the_docs() -> dict[str, Any]:
    """What docs/rules/hypergradient.md defines, its examples run one after the other."""
    page = Path(__file__).parents[2] / "docs" / "rules" / "hypergradient.md"
    module: dict[str, Any] = {"__name__": "formulas"}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page, "exec"), module)
    return module


FORMULAS = formulas_of_the_docs()

RULES["fedexp-of-the-docs"] = rule_of_the_docs()
RULES["fedhaw-by-formula"] = FORMULAS["fedhaw_by_formula"](0.1, 1e-3, 1e-2)
RULES["fedhyper-by-formula"] = FORMULAS["fedhyper_by_formula"]()
RULES["gamma-per-layer"] = FORMULAS["per_layer_gamma"](len(LAYERS), 0.1)

BACKENDS: dict[str, Callable[[np.ndarray], Any]] = {"numpy": np.array, "torch": torch.tensor}


@dataclass
class Federation:
    """Clients that pull the global model towards targets of their own, reproducibly.

    Attributes:
        clients: how many take part.
        seed: of the start and the targets.
        dtype: of the models.
        spread: parameter p is of size spread**(p / P): a badly scaled model for a large one.
    """

    clients: int = 5
    seed: int = 0
    dtype: type[np.floating[Any]] = np.float64
    spread: float = 1.0

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        scale = self.spread ** (np.arange(P) / P)
        self.start = (random.standard_normal(P) * scale).astype(self.dtype)
        self.targets = random.standard_normal((self.clients, P)) * scale
        self.num_examples = random.integers(20, 900, self.clients)
        self.names: tuple[Client, ...] = tuple(f"client-{k}" for k in range(self.clients))

    def client_models(self, w: np.ndarray, t: int) -> np.ndarray:
        """(K, P) what the clients make of `w` in round t."""
        random = np.random.default_rng([self.seed, t])
        pull = self.targets - w + 0.1 * random.standard_normal(self.targets.shape) * np.abs(w)
        return np.asarray(w + 0.05 * pull, dtype=self.dtype)

    def rounds(self, rule: Rule[Any], backend: str, count: int) -> Iterator[tuple[Round, Any, Any]]:
        """Run the rule; yields each round, its resulting model as NumPy, and the state after it."""
        to_backend = BACKENDS[backend]
        state, w = rule.init(), self.start
        for t in range(count):
            W = self.client_models(w, t)
            asked = Round(
                to_backend(w), to_backend(W), self.num_examples, clients=self.names, layers=LAYERS
            )
            model, state = rule.aggregate(state, asked)
            w = np.asarray(model)
            yield asked, w, state


def reordered(asked: Round, order: np.ndarray) -> Round:
    """The same round with its clients in another order."""
    return replace(
        asked,
        client_models=asked.client_models[list(order)],
        num_examples=np.asarray(asked.num_examples)[order],
        received=asked.received[order],
        clients=tuple(asked.clients[k] for k in order),
    )

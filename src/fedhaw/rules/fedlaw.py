"""FedLAW: aggregation weights trained every round on proxy data that the server holds.

    gamma*, lambda* = argmin  L_proxy(exp(gamma) sum_k softmax(lambda)_k w_k)
    w(t+1)          = exp(gamma*) sum_k softmax(lambda*)_k w_k

Each round starts from gamma = 0 and lambda = log(N_k / N), where the model is FedAvg's, and takes
`epochs` passes of SGD or Adam over the proxy minibatches. With s = softmax(lambda) and g the proxy
gradient at the model, the chain rule gives

    dL/dgamma    = exp(gamma) sum_k s_k <g, w_k>
    dL/dlambda_k = exp(gamma) s_k (<g, w_k> - sum_j s_j <g, w_j>)

so a step is one read of the client models to form the model and one to form the <g, w_k>, or less
where the proxy loss knows a shorter way, as perceptrons do (`fedhaw.models.span`).

Li, Lin, Shang, Wu, "Revisiting Weighted Aggregation in Federated Learning with Neural Networks",
ICML 2023.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from fedhaw.errors import shown
from fedhaw.listing import listed
from fedhaw.rules.base import Array, InvalidRule, LastRound, Metrics, Round, Vector, check_number
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.passes import combine, inner, like, softmax, to_vector
from fedhaw.spellings import also_spelt

ProxyLoss: TypeAlias = Callable[[Array], tuple[float, Array]]
"""Takes a flat model, (P,); gives the loss there and its gradient, (P,)."""

HALVE_EVERY = 20  # epochs after which Adam's rate is halved
ADAM_BETAS = (0.5, 0.999)
ADAM_EPSILON = 1e-8
MANY_EPOCHS = 8
"""Passes from which on it pays to look at a minibatch through every client's model first."""


@dataclass(frozen=True)
class FedLAWState(LastRound):
    """What the last round's search found; the next one starts afresh.

    Attributes:
        gamma: log of the sum of the weights.
        lambdas: (K,) logits of the relative weights.
        weights: (K,) softmax(lambdas).
    """

    gamma: float = 0.0
    lambdas: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def metrics(self) -> Metrics:
        """What the rule learnt, by name."""
        return {"gamma": self.gamma}


@also_spelt(optimizer="optimiser")
@listed(__name__, "fedlaw", "FedLAW")
@dataclass(frozen=True)
class FedLAW:
    """Learnable aggregation weights.

    Attributes:
        proxy: the proxy loss, or one loss per minibatch in the order they are to be visited;
            `fedhaw.models.proxy_loss` makes them from a torch module and a proxy set.
        epochs: passes over the proxy minibatches each round.
        lr: learning rate of the search.
        optimiser: "sgd", or "adam" with betas (0.5, 0.999) and the rate halved every 20 epochs;
            `optimizer` is the same.
    """

    proxy: ProxyLoss | Sequence[ProxyLoss]
    epochs: int = 100
    lr: float = 0.01
    optimiser: Literal["sgd", "adam"] = "sgd"

    def __post_init__(self) -> None:
        batches = [self.proxy] if callable(self.proxy) else self.proxy
        if not (isinstance(batches, Sequence) and batches and all(map(callable, batches))):
            raise InvalidRule("FedLAW needs proxy, a callable or a non-empty sequence of them.")
        check_number("FedLAW", "epochs", self.epochs, at_least=1, whole=True)
        check_number("FedLAW", "lr", self.lr, at_least=0)
        if self.optimiser not in ("sgd", "adam"):
            raise InvalidRule(
                f'FedLAW knows the optimisers "sgd" and "adam"; got {shown(self.optimiser)}.'
            )

    def init(self) -> FedLAWState:
        """The state before the first round."""
        return FedLAWState()

    def aggregate(self, state: FedLAWState, current: Round) -> tuple[Array, FedLAWState]:
        """The next global model, (P,), and the coefficients found for it."""
        if current.nothing_arrived:
            return unchanged(current), state
        W = current.client_models
        # FedAvg's model is where the search starts: it tells at once whether the round is sound.
        checked(combine(current.shares, W), current)
        gamma, lambdas, note = self._search(W, current.shares)
        weights = softmax(lambdas)
        model = checked(combine(np.exp(gamma) * weights, W), current)
        return model, FedLAWState(current.clients, weights, note, gamma=gamma, lambdas=lambdas)

    def _search(self, W: Array, shares: Vector) -> tuple[float, Vector, str | None]:
        batches: Sequence[ProxyLoss] = [self.proxy] if callable(self.proxy) else self.proxy
        with np.errstate(divide="ignore"):
            coefficients = np.concatenate([[0.0], np.log(shares)])
        along = [_slopes(proxy, W, self.epochs >= MANY_EPOCHS) for proxy in batches]
        optimise = _Adam(self.lr) if self.optimiser == "adam" else _SGD(self.lr)
        for epoch in range(self.epochs):
            for slopes in along:
                gradient = _gradient(coefficients, slopes)
                if not np.all(np.isfinite(gradient)):
                    note = f"the proxy gradient is not finite in epoch {epoch}; the search ended"
                    return float(coefficients[0]), coefficients[1:], note
                coefficients = coefficients - optimise(gradient, epoch)
        return float(coefficients[0]), coefficients[1:], None


def _slopes(proxy: ProxyLoss, W: Array, often: bool) -> Callable[[Vector], Vector]:
    """(K,) coefficients c -> (K,) <g, w_k>, g the proxy gradient at sum_k c_k w_k."""
    among = getattr(proxy, "among", None)
    short = among(W) if among is not None and often else None
    if short is not None:
        return lambda c: to_vector(short(c))
    return lambda c: inner(W, like(W, proxy(combine(c, W))[1]))


def _gradient(coefficients: Vector, slopes: Callable[[Vector], Vector]) -> Vector:
    scale, s = np.exp(coefficients[0]), softmax(coefficients[1:])
    along = slopes(scale * s)
    mean = s @ along
    gradient: Vector = scale * np.concatenate([[mean], s * (along - mean)])
    return gradient


@dataclass
class _SGD:
    lr: float

    def __call__(self, gradient: Vector, epoch: int) -> Vector:
        return self.lr * gradient


@dataclass
class _Adam:
    lr: float
    steps: int = 0
    mean: Vector | float = 0.0
    square: Vector | float = 0.0

    def __call__(self, gradient: Vector, epoch: int) -> Vector:
        first, second = ADAM_BETAS
        self.steps += 1
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient**2
        mean = self.mean / (1 - first**self.steps)
        square = self.square / (1 - second**self.steps)
        rate = self.lr * 0.5 ** (epoch // HALVE_EVERY)
        step: Vector = rate * mean / (np.sqrt(square) + ADAM_EPSILON)
        return step

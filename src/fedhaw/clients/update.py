"""Steps of a named optimiser: what most clients do with the global model.

    SGD        w_k <- w_k - eta (g + weight_decay w_k)
    momentum   v <- momentum v + g + weight_decay w_k;   w_k <- w_k - eta v, as torch's SGD does
    Adam       Kingma & Ba (2015), "Adam: A Method for Stochastic Optimization", torch's defaults
    FedProx    Li et al. (2020), "Federated Optimization in Heterogeneous Networks": the loss gains
               (mu/2) |w_k - w|^2, the gradient mu (w_k - w); on top of either optimiser
    clipping   g <- g min(1, clip / |g|), where g has the terms of the loss but no weight decay
    decay      eta in round t is eta eta_decay^t

The optimiser starts afresh every round: nothing but the model outlives one.
"""

from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import ClassVar, Literal, Self

from torch.nn.functional import cross_entropy

from fedhaw.clients.algorithm import ClientAlgorithm, ClientResult, ClientRound
from fedhaw.errors import FedhawError, shown
from fedhaw.listing import listed
from fedhaw.models import Loss
from fedhaw.spellings import also_spelt

LATER = {"later": True}
"""Of a field that came after the first release; see `fedhaw.description.describe`."""


class InvalidUpdate(FedhawError, ValueError):
    """A client update that does not exist or cannot work."""


@also_spelt(optimizer="optimiser")
@dataclass(frozen=True)
class LocalUpdate(ClientAlgorithm):
    """Minibatch training of the global model on the client's own samples.

    Every epoch visits all samples once, in a new order; the last batch of an epoch may be smaller.
    In models with batch norm a last batch of one sample joins the one before it: it has no variance
    to normalise by.

    Attributes:
        optimiser: ``"sgd"`` or ``"adam"``; ``optimizer`` is the same.
        eta: the learning rate; FedHAW's formulas use the same number.
        weight_decay: as in torch.optim: added to the gradient as `weight_decay` times the model.
        proximal: FedProx's mu; 0 is no proximal term.
        epochs: passes over the client's samples in a round.
        batch: samples a step.
        loss: (outputs, labels) -> mean loss of a batch.
        momentum: of SGD.
        clip: the longest gradient; 0 is no limit.
        eta_decay: by which the learning rate is multiplied from one round to the next.
    """

    stackable: ClassVar[bool] = True

    optimiser: Literal["sgd", "adam"] = "sgd"
    eta: float = 1e-3
    weight_decay: float = 0.0
    proximal: float = 0.0
    epochs: int = 1
    batch: int = 64
    loss: Loss = cross_entropy
    momentum: float = field(default=0.0, metadata=LATER)
    clip: float = field(default=0.0, metadata=LATER)
    eta_decay: float = field(default=1.0, metadata=LATER)

    def __post_init__(self) -> None:
        if self.optimiser not in ("sgd", "adam"):
            raise InvalidUpdate(f'optimiser is {shown(self.optimiser)}; choose "sgd" or "adam".')
        for name in ("epochs", "batch"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
                raise InvalidUpdate(
                    f"{name} is {shown(value)}; it must be a whole number, 1 or more."
                )
            object.__setattr__(self, name, int(value))  # torch wants no other kind
        for name in ("eta", "weight_decay", "proximal", "momentum", "clip", "eta_decay"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not 0 <= value < float("inf"):
                raise InvalidUpdate(
                    f"{name} is {shown(value)}; it must be a finite number, 0 or more."
                )
        if self.momentum >= 1 or self.eta_decay > 1:
            name, limit = (
                ("momentum", "below 1") if self.momentum >= 1 else ("eta_decay", "at most 1")
            )
            raise InvalidUpdate(f"{name} is {getattr(self, name)!r}; it must be {limit}.")
        if self.momentum and self.optimiser == "adam":
            raise InvalidUpdate(
                f"momentum is {self.momentum}, but Adam has moments of its own; use SGD, or leave "
                "momentum out."
            )
        if not callable(self.loss):
            raise InvalidUpdate(
                f"loss is {shown(self.loss)}; it must be a function (outputs, labels)."
            )

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a step is w_k - eta g and nothing else."""
        return self.optimiser == "sgd" and not (
            self.weight_decay or self.proximal or self.momentum or self.clip
        )

    def at(self, round_index: int) -> Self:
        """The same update with the learning rate of a round."""
        if self.eta_decay == 1.0:
            return self
        return replace(self, eta=self.eta * self.eta_decay**round_index, eta_decay=1.0)

    def travelled(self, steps: int) -> float:
        """How many plain steps along a constant gradient go as far as so many of this update.

        It is FedNova's |a_k|_1. Momentum goes further, and a proximal term holds back.
        """
        if not self.momentum and not self.proximal:
            return float(steps)
        way = velocity = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1.0 - self.eta * self.proximal * way
            way += velocity
        return way

    def train(self, given: ClientRound) -> ClientResult:
        """The same as in `ClientAlgorithm`."""
        trained = given.descend(self)
        return ClientResult(trained.model, trained.loss)


SGD = listed(__name__, "sgd")(LocalUpdate())
SGD_WD = listed(__name__, "sgd-wd", "weight decay 1e-4")(LocalUpdate(weight_decay=1e-4))
ADAM = listed(__name__, "adam")(LocalUpdate(optimiser="adam"))


@listed(__name__, "fedprox")
def fedprox(steps: LocalUpdate, mu: float = 1e-3) -> LocalUpdate:
    """Steps with FedProx's term; the default mu is the letter's."""
    return replace(steps, proximal=mu)


def require_sgd(algorithm: str, steps: LocalUpdate) -> None:
    """A check that an algorithm's steps are such that their sum is a sum of gradients."""
    if steps.optimiser != "sgd":
        raise InvalidUpdate(
            f"{algorithm} counts steps of SGD, and the optimiser is {steps.optimiser!r}; use sgd "
            "or sgd-wd below it."
        )

"""What a client does with the global model: a few epochs of a named optimiser, or the user's own.

    SGD       w_k <- w_k - eta (g + weight_decay w_k)
    Adam      Kingma & Ba (2015), "Adam: A Method for Stochastic Optimization", torch's defaults
    FedProx   Li et al. (2020), "Federated Optimization in Heterogeneous Networks": the loss gains
              (mu/2) |w_k - w|^2, the gradient mu (w_k - w); on top of either optimiser

The optimiser starts afresh every round: nothing but the model outlives one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.errors import FedhawError
from fedhaw.models import Loss
from fedhaw.names import accepted, is_reference, load, no_such
from fedhaw.spellings import also_spelt


class InvalidUpdate(FedhawError, ValueError):
    """A client update that does not exist or cannot work."""


@also_spelt(optimizer="optimiser")
@dataclass(frozen=True)
class LocalUpdate:
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
    """

    optimiser: Literal["sgd", "adam"] = "sgd"
    eta: float = 1e-3
    weight_decay: float = 0.0
    proximal: float = 0.0
    epochs: int = 1
    batch: int = 64
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        if self.optimiser not in ("sgd", "adam"):
            raise InvalidUpdate(f'optimiser is {self.optimiser!r}; choose "sgd" or "adam".')
        for name in ("epochs", "batch"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
                raise InvalidUpdate(f"{name} is {value!r}; it must be a whole number, 1 or more.")
            object.__setattr__(self, name, int(value))  # torch wants no other kind
        for name in ("eta", "weight_decay", "proximal"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not 0 <= value < float("inf"):
                raise InvalidUpdate(f"{name} is {value!r}; it must be a finite number, 0 or more.")

        if not callable(self.loss):
            raise InvalidUpdate(f"loss is {self.loss!r}; it must be a function (outputs, labels).")

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a step is w_k - eta g and nothing else."""
        return self.optimiser == "sgd" and self.weight_decay == self.proximal == 0.0


ClientFunction: TypeAlias = Callable[[nn.Module, Tensor, Tensor, torch.Generator], float | Tensor]
"""A user's own client update, ``update(module, x, y, generator) -> mean training loss``.

It is given a module that holds the global model, in training mode, the client's samples `x` and
labels `y`, and a generator that is the client's own for the round. What the module's parameters
hold when it returns is the client's model. Draw random numbers from the generator (torch's global
one is seeded from the same source) and the run repeats bit for bit.
"""

ClientUpdate: TypeAlias = LocalUpdate | ClientFunction

_NAMED = {
    "sgd": LocalUpdate(),
    "sgd-wd": LocalUpdate(weight_decay=1e-4),
    "adam": LocalUpdate(optimiser="adam"),
}

UPDATES = (*_NAMED, "fedprox", *(f"fedprox+{name}" for name in _NAMED if name != "sgd"))
"""Every name that `named` knows."""

FEDPROX_MU = 1e-3
"""The letter's mu."""


def named(
    name: str,
    *,
    eta: float = 1e-3,
    epochs: int = 1,
    batch: int = 64,
    weight_decay: float | None = None,
    mu: float = FEDPROX_MU,
    loss: Loss = cross_entropy,
) -> LocalUpdate:
    """A client update of the letter by name.

    Args:
        name: ``"sgd"``, ``"sgd-wd"`` (weight decay 1e-4), ``"adam"``, ``"fedprox"`` (over SGD), or
            FedProx over another one, such as ``"fedprox+adam"``.
        eta: the learning rate.
        epochs: passes over the client's samples in a round.
        batch: samples a step.
        weight_decay: in place of the name's own.
        mu: FedProx's coefficient; only where the name asks for FedProx.
        loss: (outputs, labels) -> mean loss of a batch.
    """
    parts = name.split("+")
    proximal = "fedprox" in parts
    optimisers = [part for part in parts if part != "fedprox"] or ["sgd"]
    if len(parts) > 2 or len(optimisers) != 1 or optimisers[0] not in _NAMED:
        raise InvalidUpdate(no_such("client update named", name, UPDATES))
    update = _NAMED[optimisers[0]]
    return replace(
        update,
        eta=eta,
        epochs=epochs,
        batch=batch,
        weight_decay=update.weight_decay if weight_decay is None else weight_decay,
        proximal=mu if proximal else 0.0,
        loss=loss,
    )


def by_name(
    name: str,
    *,
    eta: float,
    epochs: int,
    batch: int,
    weight_decay: float | None = None,
    mu: float = FEDPROX_MU,
) -> ClientUpdate:
    """A client update by name: one of the letter, see `named`, or a user's own.

    A user's own `LocalUpdate` takes the numbers given here in place of its own, as those of the
    letter do; a function of theirs is given those that are among its parameters after the four of
    a `ClientFunction`.

    Args:
        name: one of `UPDATES`, or where a user's own stands, such as `my_update.py:train`.
        eta: the learning rate.
        epochs: passes over the client's samples in a round.
        batch: samples a step.
        weight_decay: in place of the update's own.
        mu: FedProx's coefficient.

    Raises:
        InvalidUpdate: there is no such update.
        UnknownName: there is nothing to be loaded there.
    """
    if not is_reference(name):
        return named(name, eta=eta, epochs=epochs, batch=batch, weight_decay=weight_decay, mu=mu)
    own = load(name)
    if isinstance(own, LocalUpdate):
        decay = own.weight_decay if weight_decay is None else weight_decay
        return replace(own, eta=eta, epochs=epochs, batch=batch, weight_decay=decay)
    if not callable(own) or isinstance(own, type):
        raise InvalidUpdate(
            f"{name} is not a client update; it must be a LocalUpdate, or a function "
            "(module, x, y, generator) -> loss."
        )
    settings = {"eta": eta, "epochs": epochs, "batch": batch, "mu": mu}
    settings |= {} if weight_decay is None else {"weight_decay": weight_decay}
    given = accepted(own, settings, first=4)
    return partial(own, **given) if given else own

"""The client algorithms by name: those of fedhaw in one table, a user's own by where it stands.

A name is made of parts: an algorithm, FedProx's term and an optimiser, each of which may be left
out, such as ``scaffold``, ``fedprox+adam`` or ``fednova+fedprox+sgd-wd``. A new algorithm needs its
file and one line in the table below.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from torch.nn.functional import cross_entropy

from fedhaw.clients.algorithm import ClientAlgorithm
from fedhaw.clients.feddyn import ALPHA as FEDDYN_ALPHA
from fedhaw.clients.feddyn import FedDyn
from fedhaw.clients.fednova import FedNova
from fedhaw.clients.own_function import ClientFunction, OwnFunction
from fedhaw.clients.scaffold import SCAFFOLD
from fedhaw.clients.update import InvalidUpdate, LocalUpdate
from fedhaw.models import Loss
from fedhaw.names import accepted, is_reference, load, make, no_such

ClientUpdate: TypeAlias = ClientAlgorithm | ClientFunction
"""What a client does with the global model and its own data: an algorithm, or a function."""

OPTIMISERS = {
    "sgd": LocalUpdate(),
    "sgd-wd": LocalUpdate(weight_decay=1e-4),
    "adam": LocalUpdate(optimiser="adam"),
}

ALGORITHMS: dict[str, Callable[[LocalUpdate, float], ClientAlgorithm]] = {
    "scaffold": lambda steps, feddyn_alpha: SCAFFOLD(steps),
    "feddyn": lambda steps, feddyn_alpha: FedDyn(steps, feddyn_alpha),
    "fednova": lambda steps, feddyn_alpha: FedNova(steps),
}
"""Algorithms on top of an optimiser's steps, made from these and from settings of their own."""

UPDATES = (
    *OPTIMISERS,
    "fedprox",
    *(f"fedprox+{name}" for name in OPTIMISERS if name != "sgd"),
    *ALGORITHMS,
)
"""Every name that `named` knows, but for further combinations."""

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
    momentum: float = 0.0,
    clip: float = 0.0,
    eta_decay: float = 1.0,
    feddyn_alpha: float = FEDDYN_ALPHA,
    loss: Loss = cross_entropy,
) -> ClientAlgorithm:
    """A client algorithm by name.

    Args:
        name: ``"sgd"``, ``"sgd-wd"`` (weight decay 1e-4) or ``"adam"``; ``"fedprox"``,
            ``"scaffold"``, ``"feddyn"`` or ``"fednova"`` over SGD; or these over another one, such
            as ``"fedprox+adam"``.
        eta: the learning rate.
        epochs: passes over the client's samples in a round.
        batch: samples a step.
        weight_decay: in place of the name's own.
        mu: FedProx's coefficient; only where the name asks for FedProx.
        momentum: of SGD.
        clip: the longest gradient; 0 is no limit.
        eta_decay: by which the learning rate is multiplied from one round to the next.
        feddyn_alpha: FedDyn's coefficient; only where the name asks for FedDyn.
        loss: (outputs, labels) -> mean loss of a batch.

    Raises:
        InvalidUpdate: there is no such algorithm, or its parts do not go together.
    """
    parts = name.split("+")
    optimisers = [part for part in parts if part in OPTIMISERS] or ["sgd"]
    algorithms = [part for part in parts if part in ALGORITHMS]
    known = {"fedprox", *OPTIMISERS, *ALGORITHMS}
    if not known.issuperset(parts) or len(set(parts)) < len(parts):
        raise InvalidUpdate(no_such("client update named", name, UPDATES))
    if len(optimisers) > 1 or len(algorithms) > 1:
        raise InvalidUpdate(no_such("client update named", name, UPDATES))
    plain = OPTIMISERS[optimisers[0]]
    update = replace(
        plain,
        eta=eta,
        epochs=epochs,
        batch=batch,
        weight_decay=plain.weight_decay if weight_decay is None else weight_decay,
        proximal=mu if "fedprox" in parts else 0.0,
        momentum=momentum,
        clip=clip,
        eta_decay=eta_decay,
        loss=loss,
    )
    return ALGORITHMS[algorithms[0]](update, feddyn_alpha) if algorithms else update


def by_name(name: str, settings: Mapping[str, Any]) -> ClientUpdate:
    """A client update by name: one of fedhaw, see `named`, or a user's own.

    A user's own `LocalUpdate` takes the numbers given here in place of its own, as fedhaw's do. A
    function of theirs is given those that are among its parameters after the four of a
    `ClientFunction`, and a class of theirs those that are among its fields; `steps` is the
    `LocalUpdate` that all of them make.

    Args:
        name: one of `UPDATES`, or where a user's own stands, such as `my_update.py:train`.
        settings: eta, epochs, batch and the other settings of a client update.

    Raises:
        InvalidUpdate: there is no such update, or it cannot work.
        UnknownName: there is nothing to be loaded there.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    if not is_reference(name):
        return named(name, **given)
    own = load(name)
    if isinstance(own, LocalUpdate):
        steps = {key: value for key, value in given.items() if hasattr(own, key)}
        return replace(own, **steps)
    if isinstance(own, ClientAlgorithm) and isinstance(own, type):  # a class has the methods too
        own = make(name, object, **given, steps=named("sgd", **given))
    if isinstance(own, ClientAlgorithm):
        return own
    if not callable(own) or isinstance(own, type):
        raise InvalidUpdate(
            f"{name} is not a client update; it must be a LocalUpdate, a class that derives from "
            "fedhaw.clients.ClientAlgorithm, or a function (module, x, y, generator) -> loss."
        )
    numbers = accepted(own, given, first=4)
    return partial(own, **numbers) if numbers else own


def algorithm_of(client_update: ClientUpdate) -> ClientAlgorithm:
    """The algorithm that a client update is; a function becomes one."""
    if isinstance(client_update, ClientAlgorithm):
        return client_update
    return OwnFunction(client_update)


def steps_of(client_update: ClientUpdate) -> LocalUpdate | None:
    """The steps that a client update makes; None for a user's own kind of training."""
    steps = getattr(client_update, "steps", client_update)
    return steps if isinstance(steps, LocalUpdate) else None

"""The client algorithms by name: those that the files of this package list, and a user's own.

A name is made of parts: an algorithm, FedProx's term and an optimiser, each of which may be left
out, such as ``scaffold``, ``fedprox+adam`` or ``fednova+fedprox+sgd-wd``. A listed `LocalUpdate` is
an optimiser, a listed function changes its steps, and a listed class is an algorithm above them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from torch.nn.functional import cross_entropy

from fedhaw.clients.algorithm import ClientAlgorithm
from fedhaw.clients.own_function import ClientFunction, OwnFunction
from fedhaw.clients.update import SGD, InvalidUpdate, LocalUpdate
from fedhaw.listing import Listing
from fedhaw.models import Loss
from fedhaw.names import accepted, is_reference, load, make, no_such

ClientUpdate: TypeAlias = ClientAlgorithm | ClientFunction
"""What a client does with the global model and its own data: an algorithm, or a function."""

UPDATES: Listing[LocalUpdate | Callable[..., ClientAlgorithm]] = Listing("clients")
"""Every part that a name may have."""


def named(
    name: str,
    *,
    eta: float = 1e-3,
    epochs: int = 1,
    batch: int = 64,
    weight_decay: float | None = None,
    momentum: float = 0.0,
    clip: float = 0.0,
    eta_decay: float = 1.0,
    loss: Loss = cross_entropy,
    **own: float,
) -> ClientAlgorithm:
    """A client algorithm by name.

    Args:
        name: one of `UPDATES`, or several of them over each other, such as ``"fedprox+adam"``.
        eta: the learning rate.
        epochs: passes over the client's samples in a round.
        batch: samples a step.
        weight_decay: in place of the name's own.
        momentum: of SGD.
        clip: the longest gradient; 0 is no limit.
        eta_decay: by which the learning rate is multiplied from one round to the next.
        loss: (outputs, labels) -> mean loss of a batch.
        own: what only some parts of a name know: FedProx's ``mu``; the fields of an algorithm after
            its name, such as ``feddyn_alpha``.

    Raises:
        InvalidUpdate: there is no such algorithm, or its parts do not go together.
    """
    parts = name.split("+")
    found = {part: UPDATES[part] for part in parts if part in UPDATES}
    optimisers = [thing for thing in found.values() if isinstance(thing, LocalUpdate)]
    algorithms = [thing for thing in found.values() if isinstance(thing, type)]
    if len(found) < len(parts) or len(optimisers) > 1 or len(algorithms) > 1:
        wrong = next((part for part in parts if part not in found), name)
        raise InvalidUpdate(no_such("client update named", wrong, tuple(UPDATES)))
    plain = optimisers[0] if optimisers else SGD
    made: ClientAlgorithm = replace(
        plain,
        eta=eta,
        epochs=epochs,
        batch=batch,
        weight_decay=plain.weight_decay if weight_decay is None else weight_decay,
        momentum=momentum,
        clip=clip,
        eta_decay=eta_decay,
        loss=loss,
    )
    above = [(part, thing) for part, thing in found.items() if not isinstance(thing, LocalUpdate)]
    for part, thing in sorted(above, key=lambda item: isinstance(item[1], type)):
        fields = {key.removeprefix(f"{part}_"): value for key, value in own.items()}
        made = thing(made, **accepted(thing, fields, first=1))
    return made


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


def is_client_update(thing: object) -> bool:
    """Whether something is an algorithm or a function, and no class of them."""
    return not isinstance(thing, type) and (callable(thing) or isinstance(thing, ClientAlgorithm))


def algorithm_of(client_update: ClientUpdate) -> ClientAlgorithm:
    """The algorithm that a client update is; a function becomes one."""
    if isinstance(client_update, ClientAlgorithm):
        return client_update
    return OwnFunction(client_update)


def steps_of(client_update: ClientUpdate) -> LocalUpdate | None:
    """The steps that a client update makes; None for a user's own kind of training."""
    steps = getattr(client_update, "steps", client_update)
    return steps if isinstance(steps, LocalUpdate) else None

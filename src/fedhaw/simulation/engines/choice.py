"""Making an engine by name, and choosing one when asked for `auto`."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.clients import ClientUpdate, LocalUpdate
from fedhaw.models import Layout
from fedhaw.models.learner import closed_form_sizes
from fedhaw.names import no_such
from fedhaw.rules.threads import available_cores
from fedhaw.simulation.engines.base import Engine
from fedhaw.simulation.engines.federation import Federation, InvalidFederation
from fedhaw.simulation.engines.processes import ProcessesEngine
from fedhaw.simulation.engines.sequential import SequentialEngine
from fedhaw.simulation.engines.stacked import StackedEngine

EngineName: TypeAlias = Literal["auto", "sequential", "processes", "stacked"]

ENGINES: tuple[str, ...] = get_args(EngineName)
"""Every name that `create` knows."""

SMALL_STEP = 4e6
"""Multiplications in one client's training step up to which calling the operations costs more."""

SHORT_VISIT = 2e8
"""Multiplications in one client's round up to which handing it to a worker costs more."""


def create(
    name: str,
    *,
    module: nn.Module,
    layout: Layout,
    update: ClientUpdate,
    x: Tensor,
    y: Tensor,
    parts: Sequence[NDArray[np.integer]],
    seed: int,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    deadline: float | None = None,
) -> Engine:
    """Make an engine; close it when done.

    Args:
        name: ``"sequential"``, ``"processes"``, ``"stacked"``, or ``"auto"`` to let the model, the
            data and the machine decide.
        module: the model's template; never changed.
        layout: how it lies in the flat vector, and what happens to its buffers.
        update: what a client does.
        x: (N, ...) samples of all clients.
        y: (N,) labels.
        parts: for each client, the indices of its samples.
        seed: of the clients' randomness.
        device: where to compute.
        workers: how many processes, default one per core; only `processes` asks.
        deadline: seconds after which a client's model is too late and counts as lost; `stacked`
            has no single client to wait for and refuses it.

    Raises:
        InvalidFederation: the parts do not fit together, or the engine cannot train them.
    """
    if workers is not None and workers < 1:
        raise InvalidFederation(f"workers is {workers}; it must be 1 or more.")
    if deadline is not None and not deadline > 0:
        raise InvalidFederation(f"deadline is {deadline} s; it must be more than 0.")
    federation = Federation.of(module, layout, update, x, y, parts, seed, device)
    if name == "auto":
        name = choose(federation, workers, deadline)
    match name:
        case "sequential":
            return SequentialEngine(federation, deadline)
        case "processes":
            return ProcessesEngine(federation, workers, deadline)
        case "stacked" if deadline is None:
            return StackedEngine(federation)
        case "stacked":
            raise InvalidFederation(
                "The stacked engine trains all clients at once and cannot keep a deadline for one "
                'of them; use engine="processes".'
            )
    raise InvalidFederation(no_such("engine named", name, ENGINES, also=""))


def choose(
    federation: Federation, workers: int | None = None, deadline: float | None = None
) -> EngineName:
    """The engine that is probably fastest here.

    Perceptrons whose steps are too small to keep a core busy are stacked. Otherwise several cores
    train several clients, unless visits are so short that handing them out costs more than it
    saves. Nothing that depends on the moment is measured: the choice, and with it the last bits of
    the result, is the same each time.
    """
    if federation.device.type != "cpu":
        return "sequential"
    clients = len(federation.offsets) - 1
    samples = int(federation.offsets[-1]) / max(clients, 1)
    update = federation.update
    if isinstance(update, LocalUpdate):
        # A lower bound for modules that use their parameters more than once, such as convolutions.
        step = 3.0 * federation.layout.parameters * min(update.batch, samples)
        visit = 3.0 * federation.layout.parameters * samples * update.epochs
        plain = closed_form_sizes(federation.module, update.loss) is not None
        if plain and step <= SMALL_STEP and deadline is None:
            return "stacked"
        if plain and visit <= SHORT_VISIT:
            return "sequential"
    return "processes" if (workers or available_cores()) > 1 and clients > 1 else "sequential"

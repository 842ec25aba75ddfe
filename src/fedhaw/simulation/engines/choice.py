"""Making an engine by name, and choosing one when asked for `auto`."""

from collections.abc import Callable

from fedhaw.clients import algorithm_of, steps_of
from fedhaw.listing import Listing
from fedhaw.models.learner import closed_form_sizes
from fedhaw.rules.threads import available_cores
from fedhaw.simulation.engines import worker_process
from fedhaw.simulation.engines.base import Engine
from fedhaw.simulation.federation import Federation

ENGINES: Listing[Callable[[Federation], Engine]] = Listing("simulation.engines")
"""Every engine by its name; the setting `engine` has these, and `auto`."""

SMALL_STEP = 4e6
"""Multiplications in one client's training step up to which calling the operations costs more."""

SHORT_VISIT = 2e8
"""Multiplications in one client's round up to which handing it to a worker costs more."""


def create(federation: Federation) -> Engine:
    """The engine that the federation asks for; close it when done.

    Raises:
        InvalidSimulation: the engine cannot train such clients.
    """
    name = federation.settings["engine"]
    return ENGINES[choose(federation) if name == "auto" else name](federation)


def choose(federation: Federation) -> str:
    """The engine that is probably fastest here.

    Perceptrons whose steps are too small to keep a core busy are stacked. Otherwise several cores
    train several clients, unless visits are so short that handing them out costs more than it
    saves. Nothing that depends on the moment is measured: the choice, and with it the last bits of
    the result, is the same each time.
    """
    if federation.device.type != "cpu":
        return "sequential"
    clients, update = federation.clients, federation.client_update
    samples = int(federation.sizes.sum()) / max(clients, 1)
    steps = steps_of(update)
    if steps is not None:
        # A lower bound for modules that use their parameters more than once, such as convolutions.
        step = 3.0 * federation.layout.parameters * min(steps.batch, samples)
        visit = 3.0 * federation.layout.parameters * samples * steps.epochs
        plain = closed_form_sizes(federation.module, steps.loss) is not None
        stackable = algorithm_of(update).stackable and federation.settings["deadline"] is None
        if plain and step <= SMALL_STEP and stackable:
            return "stacked"
        if plain and visit <= SHORT_VISIT:
            return "sequential"
    several = (federation.settings["workers"] or available_cores()) > 1 and clients > 1
    return "processes" if several and worker_process.SUPPORTED else "sequential"

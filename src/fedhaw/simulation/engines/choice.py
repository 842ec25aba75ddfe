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

LONG_VISIT = 1e9
"""Multiplications in one client's round from which on a process of its own is worth its start."""


def create(federation: Federation) -> Engine:
    """The engine that the federation asks for; close it when done.

    Raises:
        InvalidSimulation: the engine cannot train such clients.
    """
    name = federation.settings["engine"]
    return ENGINES[choose(federation) if name == "auto" else name](federation)


def choose(federation: Federation) -> str:
    """The engine that is probably fastest here; `benchmarks/engines.py` prints how far it is so.

    Perceptrons are stacked, unless each client has much to do by itself. Such clients, and those of
    any other module, are handed to several cores. Nothing that depends on the moment is measured,
    and how many cores there are only decides between two engines that compute the same: the last
    bits of a result are the same each time, in a sweep with one core for each run as well. So one
    core does not stack other modules either, though for very short visits it would be faster.
    """
    if federation.device.type != "cpu":
        return "sequential"
    update = federation.client_update
    steps, settings = steps_of(update), federation.settings
    stackable = algorithm_of(update).stackable and settings["deadline"] is None
    if stackable and steps and closed_form_sizes(federation.module, steps.loss):
        samples = int(federation.sizes.sum()) / max(federation.clients, 1)
        if 3.0 * federation.layout.parameters * samples * steps.epochs <= LONG_VISIT:
            return "stacked"
    several = (settings["workers"] or available_cores()) > 1 and federation.clients > 1
    return "processes" if several and worker_process.SUPPORTED else "sequential"

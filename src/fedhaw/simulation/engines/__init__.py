"""Engines: how the clients of a round are trained, one way for every size of model."""

from fedhaw.simulation.engines.base import ClientReport, Engine, TrainingRound
from fedhaw.simulation.engines.choice import ENGINES, create
from fedhaw.simulation.engines.processes import WorkersFailed

__all__ = [
    "ENGINES",
    "ClientReport",
    "Engine",
    "TrainingRound",
    "WorkersFailed",
    "create",
]

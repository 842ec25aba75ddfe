"""The round loop, the engines that train clients, histories and checkpoints."""

from fedhaw.checkpoints import CheckpointError
from fedhaw.history import History, HistoryError
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.run import run, simulate

__all__ = [
    "CheckpointError",
    "Federation",
    "History",
    "HistoryError",
    "InvalidSimulation",
    "run",
    "simulate",
]

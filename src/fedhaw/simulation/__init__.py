"""The round loop, the engines that train clients, histories and checkpoints."""

from fedhaw.checkpoints import CheckpointError
from fedhaw.history import History, HistoryError
from fedhaw.simulation.federation import Federation, InvalidSimulation
from fedhaw.simulation.run import simulate
from fedhaw.simulation.stand_ins import StandIn

__all__ = [
    "CheckpointError",
    "Federation",
    "History",
    "HistoryError",
    "InvalidSimulation",
    "StandIn",
    "simulate",
]

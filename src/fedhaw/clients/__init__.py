"""What a client does with the global model, its own data and, if it has one, its memory."""

from fedhaw.clients.algorithm import (
    ClientAlgorithm,
    ClientResult,
    ClientRound,
    ReceivedUploads,
    Start,
    Trained,
    Vectors,
)
from fedhaw.clients.feddyn import FedDyn
from fedhaw.clients.fednova import FedNova
from fedhaw.clients.own_function import ClientFunction
from fedhaw.clients.randomness import client_generator, client_seed
from fedhaw.clients.registry import UPDATES, ClientUpdate, algorithm_of, by_name, named, steps_of
from fedhaw.clients.scaffold import SCAFFOLD
from fedhaw.clients.trainer import Trainer
from fedhaw.clients.update import InvalidUpdate, LocalUpdate

__all__ = [
    "SCAFFOLD",
    "UPDATES",
    "ClientAlgorithm",
    "ClientFunction",
    "ClientResult",
    "ClientRound",
    "ClientUpdate",
    "FedDyn",
    "FedNova",
    "InvalidUpdate",
    "LocalUpdate",
    "ReceivedUploads",
    "Start",
    "Trained",
    "Trainer",
    "Vectors",
    "algorithm_of",
    "by_name",
    "client_generator",
    "client_seed",
    "named",
    "steps_of",
]

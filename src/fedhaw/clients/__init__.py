"""What a client does with the global model and its own data."""

from fedhaw.clients.randomness import client_generator, client_seed
from fedhaw.clients.trainer import Trainer
from fedhaw.clients.update import (
    ClientFunction,
    ClientUpdate,
    InvalidUpdate,
    LocalUpdate,
    named,
)

__all__ = [
    "ClientFunction",
    "ClientUpdate",
    "InvalidUpdate",
    "LocalUpdate",
    "Trainer",
    "client_generator",
    "client_seed",
    "named",
]

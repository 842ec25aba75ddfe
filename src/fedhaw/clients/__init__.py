"""What a client does with the global model and its own data."""

from fedhaw.clients.randomness import client_generator, client_seed
from fedhaw.clients.trainer import Trainer
from fedhaw.clients.update import (
    UPDATES,
    ClientFunction,
    ClientUpdate,
    InvalidUpdate,
    LocalUpdate,
    by_name,
    named,
)

__all__ = [
    "UPDATES",
    "ClientFunction",
    "ClientUpdate",
    "InvalidUpdate",
    "LocalUpdate",
    "Trainer",
    "by_name",
    "client_generator",
    "client_seed",
    "named",
]

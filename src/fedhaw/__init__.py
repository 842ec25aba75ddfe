"""fedhaw: federated learning whose server learns how much to trust each client."""

from fedhaw.errors import FedhawError
from fedhaw.rules import (
    FedAdp,
    FedAvg,
    FedHAW,
    FedHyperG,
    FedLAW,
    FedLWS,
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Round,
    Rule,
    State,
    StateFileError,
    aggregate_surviving,
    load_state,
    save_state,
)

__version__ = "0.1.0"

__all__ = [
    "FedAdp",
    "FedAvg",
    "FedHAW",
    "FedHyperG",
    "FedLAW",
    "FedLWS",
    "FedhawError",
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "Round",
    "Rule",
    "State",
    "StateFileError",
    "__version__",
    "aggregate_surviving",
    "load_state",
    "save_state",
]

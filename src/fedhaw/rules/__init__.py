"""The server rules: K client models in, one global model out."""

from fedhaw.rules.base import (
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Round,
    Rule,
    State,
)
from fedhaw.rules.fedadp import FedAdp, FedAdpState
from fedhaw.rules.fedavg import FedAvg, FedAvgState
from fedhaw.rules.fedexp import FedExP, FedExPState
from fedhaw.rules.fedhaw import FedHAW, FedHAWState
from fedhaw.rules.fedhaw_auto import FedHAWAuto, FedHAWAutoState
from fedhaw.rules.fedhyper import FedHyperG, FedHyperGState
from fedhaw.rules.fedlaw import FedLAW, FedLAWState, ProxyLoss
from fedhaw.rules.fedlws import FedLWS, FedLWSState
from fedhaw.rules.guards import aggregate_surviving
from fedhaw.rules.lengths import LengthGuard
from fedhaw.rules.storage import (
    load_state,
    pack_state,
    save_state,
    unpack_state,
)

__all__ = [
    "FedAdp",
    "FedAdpState",
    "FedAvg",
    "FedAvgState",
    "FedExP",
    "FedExPState",
    "FedHAW",
    "FedHAWAuto",
    "FedHAWAutoState",
    "FedHAWState",
    "FedHyperG",
    "FedHyperGState",
    "FedLAW",
    "FedLAWState",
    "FedLWS",
    "FedLWSState",
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "LengthGuard",
    "ProxyLoss",
    "Round",
    "Rule",
    "State",
    "aggregate_surviving",
    "load_state",
    "pack_state",
    "save_state",
    "unpack_state",
]

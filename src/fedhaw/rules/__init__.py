"""The server rules: K client models in, one global model out."""

from fedhaw.rules.adaptive import AdaptiveState, FedAdagrad, FedAdam, FedYogi
from fedhaw.rules.base import (
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Round,
    Rule,
    State,
)
from fedhaw.rules.clipped import Clipped, ClippedState
from fedhaw.rules.fedadp import FedAdp, FedAdpState
from fedhaw.rules.fedau import FedAU, FedAUState
from fedhaw.rules.fedavg import FedAvg, FedAvgState
from fedhaw.rules.fedavg_arrivals import FedAvgArrivals
from fedhaw.rules.fedavgm import FedAvgM, FedAvgMState
from fedhaw.rules.fedawa import FedAWA, FedAWAState
from fedhaw.rules.fedexp import FedExP, FedExPState
from fedhaw.rules.fedhaw import FedHAW, FedHAWState
from fedhaw.rules.fedhaw_auto import FedHAWAuto, FedHAWAutoState
from fedhaw.rules.fedhyper import FedHyperG, FedHyperGState
from fedhaw.rules.fedlaw import FedLAW, FedLAWState, ProxyLoss
from fedhaw.rules.fedlws import FedLWS, FedLWSState
from fedhaw.rules.fedvarp import FedVARP, FedVARPState
from fedhaw.rules.guards import aggregate_surviving
from fedhaw.rules.krum import Krum, MultiKrum
from fedhaw.rules.ldawa import LDAWA, LDAWAState
from fedhaw.rules.lengths import LengthGuard
from fedhaw.rules.median import Median
from fedhaw.rules.mifa import MIFA, MIFAState
from fedhaw.rules.private import Privacy, Private, PrivateState
from fedhaw.rules.rfa import RFA
from fedhaw.rules.storage import (
    load_state,
    pack_state,
    save_state,
    unpack_state,
)
from fedhaw.rules.trimmed_mean import TrimmedMean

__all__ = [
    "LDAWA",
    "MIFA",
    "RFA",
    "AdaptiveState",
    "Clipped",
    "ClippedState",
    "FedAU",
    "FedAUState",
    "FedAWA",
    "FedAWAState",
    "FedAdagrad",
    "FedAdam",
    "FedAdp",
    "FedAdpState",
    "FedAvg",
    "FedAvgArrivals",
    "FedAvgM",
    "FedAvgMState",
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
    "FedVARP",
    "FedVARPState",
    "FedYogi",
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "Krum",
    "LDAWAState",
    "LengthGuard",
    "MIFAState",
    "Median",
    "MultiKrum",
    "Privacy",
    "Private",
    "PrivateState",
    "ProxyLoss",
    "Round",
    "Rule",
    "State",
    "TrimmedMean",
    "aggregate_surviving",
    "load_state",
    "pack_state",
    "save_state",
    "unpack_state",
]

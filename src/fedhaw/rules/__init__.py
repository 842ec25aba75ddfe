"""The server rules: K client models in, one global model out."""

from fedhaw.rules.adaptive import FedAdagrad, FedAdam, FedYogi
from fedhaw.rules.base import InvalidClientModel, InvalidRound, InvalidRule, Round, Rule, State
from fedhaw.rules.clipped import Clipped
from fedhaw.rules.fedadp import FedAdp
from fedhaw.rules.fedau import FedAU
from fedhaw.rules.fedavg import FedAvg
from fedhaw.rules.fedavg_arrivals import FedAvgArrivals
from fedhaw.rules.fedavgm import FedAvgM
from fedhaw.rules.fedawa import FedAWA
from fedhaw.rules.fedexp import FedExP
from fedhaw.rules.fedhaw import FedHAW
from fedhaw.rules.fedhaw_auto import FedHAWAuto
from fedhaw.rules.fedhyper import FedHyperG
from fedhaw.rules.fedlaw import FedLAW, ProxyLoss
from fedhaw.rules.fedlws import FedLWS
from fedhaw.rules.fedvarp import FedVARP
from fedhaw.rules.guards import aggregate_surviving
from fedhaw.rules.krum import Krum, MultiKrum
from fedhaw.rules.ldawa import LDAWA
from fedhaw.rules.lengths import LengthGuard
from fedhaw.rules.median import Median
from fedhaw.rules.mifa import MIFA
from fedhaw.rules.private import Privacy, Private
from fedhaw.rules.rfa import RFA
from fedhaw.rules.storage import load_state, pack_state, save_state, unpack_state
from fedhaw.rules.trimmed_mean import TrimmedMean

__all__ = [
    "LDAWA",
    "MIFA",
    "RFA",
    "Clipped",
    "FedAU",
    "FedAWA",
    "FedAdagrad",
    "FedAdam",
    "FedAdp",
    "FedAvg",
    "FedAvgArrivals",
    "FedAvgM",
    "FedExP",
    "FedHAW",
    "FedHAWAuto",
    "FedHyperG",
    "FedLAW",
    "FedLWS",
    "FedVARP",
    "FedYogi",
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "Krum",
    "LengthGuard",
    "Median",
    "MultiKrum",
    "Privacy",
    "Private",
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

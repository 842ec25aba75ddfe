"""fedhaw: federated learning whose server learns how much to trust each client."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedhaw.checkpoints import CheckpointError
from fedhaw.errors import FedhawError, MissingExtra
from fedhaw.history import History, HistoryError
from fedhaw.rules import (
    LDAWA,
    MIFA,
    RFA,
    Clipped,
    FedAdagrad,
    FedAdam,
    FedAdp,
    FedAU,
    FedAvg,
    FedAvgArrivals,
    FedAvgM,
    FedAWA,
    FedExP,
    FedHAW,
    FedHAWAuto,
    FedHyperG,
    FedLAW,
    FedLWS,
    FedVARP,
    FedYogi,
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Krum,
    LengthGuard,
    Median,
    MultiKrum,
    Round,
    Rule,
    State,
    TrimmedMean,
    aggregate_surviving,
    load_state,
    save_state,
)
from fedhaw.uplink import BurstyUplink, LetterUplink, RecordedUplink

if TYPE_CHECKING:
    from fedhaw.clients import LocalUpdate as LocalUpdate
    from fedhaw.hypergradient import HypergradientRule as HypergradientRule
    from fedhaw.simulation import simulate as simulate

__version__ = "0.1.0"

# These need torch, which the rules alone do not; they are imported when first asked for.
_SIMULATION = {
    "HypergradientRule": "fedhaw.hypergradient",
    "LocalUpdate": "fedhaw.clients",
    "simulate": "fedhaw.simulation",
}


def _torch_is_installed() -> bool:
    try:
        return find_spec("torch") is not None
    except ValueError:  # somebody put something in its place
        return False


__all__ = [
    "LDAWA",
    "MIFA",
    "RFA",
    "BurstyUplink",
    "CheckpointError",
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
    "FedhawError",
    "History",
    "HistoryError",
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "Krum",
    "LengthGuard",
    "LetterUplink",
    "Median",
    "MissingExtra",
    "MultiKrum",
    "RecordedUplink",
    "Round",
    "Rule",
    "State",
    "TrimmedMean",
    "__version__",
    "aggregate_surviving",
    "load_state",
    "save_state",
]
if _torch_is_installed():
    __all__ += ["HypergradientRule", "LocalUpdate", "simulate"]


def __getattr__(name: str) -> object:
    if name not in _SIMULATION:
        raise AttributeError(f"module 'fedhaw' has no attribute {name!r}")
    try:
        return getattr(import_module(_SIMULATION[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fedhaw"):
            raise
        raise MissingExtra(
            f"fedhaw.{name} needs {error.name}, which is not installed; "
            "run: pip install 'fedhaw[sim]'."
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)

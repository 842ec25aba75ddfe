"""fedhaw: federated learning whose server learns how much to trust each client."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedhaw import rules as _rules
from fedhaw.checkpoints import CheckpointError
from fedhaw.errors import FedhawError, MissingExtra, importing
from fedhaw.files import FileWriteError
from fedhaw.history import History, HistoryError
from fedhaw.names import UnknownName
from fedhaw.rules import *
from fedhaw.rules.registry import RULES as _RULES
from fedhaw.uplink import (
    BurstyUplink,
    HourlyUplink,
    InvalidUplink,
    LabelUplink,
    LateUplink,
    LetterUplink,
    RecordedUplink,
)

if TYPE_CHECKING:
    from fedhaw.clients import InvalidUpdate as InvalidUpdate
    from fedhaw.clients import LocalUpdate as LocalUpdate
    from fedhaw.data import DataError as DataError
    from fedhaw.hypergradient import HypergradientRule as HypergradientRule
    from fedhaw.models import InvalidMetric as InvalidMetric
    from fedhaw.models import UnsupportedModule as UnsupportedModule
    from fedhaw.settings import InvalidSetting as InvalidSetting
    from fedhaw.simulation import InvalidSimulation as InvalidSimulation
    from fedhaw.simulation import simulate as simulate

__version__ = "0.2.0"

# These need torch, which the rules alone do not; they are imported when first asked for.
_SIMULATION = {
    "HypergradientRule": "fedhaw.hypergradient",
    "InvalidMetric": "fedhaw.models",
    "InvalidSimulation": "fedhaw.simulation",
    "InvalidUpdate": "fedhaw.clients",
    "LocalUpdate": "fedhaw.clients",
    "UnsupportedModule": "fedhaw.models",
    "simulate": "fedhaw.simulation",
}
# A rule that `fedhaw.rules` does not import by its name is offered all the same.
_LISTED = {entry.cls.__name__: entry.cls for entry in _RULES.values()}
# These need no torch; only they take their time.
_LATER = {"DataError": "fedhaw.data", "InvalidSetting": "fedhaw.settings"}


def _torch_is_installed() -> bool:
    try:
        return find_spec("torch") is not None
    except ValueError:  # somebody put something in its place
        return False


__all__ = [
    "BurstyUplink",
    "CheckpointError",
    "DataError",
    "FedhawError",
    "FileWriteError",
    "History",
    "HistoryError",
    "HourlyUplink",
    "InvalidSetting",
    "InvalidUplink",
    "LabelUplink",
    "LateUplink",
    "LetterUplink",
    "MissingExtra",
    "RecordedUplink",
    "UnknownName",
    "__version__",
]
__all__ += _rules.__all__
__all__ += [name for name in _LISTED if name not in __all__]
if _torch_is_installed():
    __all__ += list(_SIMULATION)


def __getattr__(name: str) -> object:
    place = (_SIMULATION | _LATER).get(name)
    if place is None:
        if name in _LISTED:
            return _LISTED[name]
        raise AttributeError(f"module 'fedhaw' has no attribute {name!r}")
    with importing(f"fedhaw.{name}", "sim"):
        return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted(__all__)

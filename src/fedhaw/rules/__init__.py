"""The server rules: K client models in, one global model out."""

from fedhaw.rules import table
from fedhaw.rules.base import (
    InvalidClientModel,
    InvalidRound,
    InvalidRule,
    Round,
    Rule,
    State,
)
from fedhaw.rules.fedlaw import ProxyLoss
from fedhaw.rules.guards import aggregate_surviving
from fedhaw.rules.lengths import LengthGuard
from fedhaw.rules.private import Privacy, Private
from fedhaw.rules.storage import (
    load_state,
    pack_state,
    save_state,
    unpack_state,
)
from fedhaw.rules.table import *

__all__ = [
    "InvalidClientModel",
    "InvalidRound",
    "InvalidRule",
    "LengthGuard",
    "Privacy",
    "Private",
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
__all__ += table.__all__

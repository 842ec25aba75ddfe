"""The one record of a run: what it is, what happened round by round, how it lies on disk.

The simulator and Flower deployments write it, reports and users read it. Needs NumPy only.
"""

from fedhaw.history.errors import HistoryError
from fedhaw.history.file import (
    COMPRESSED_NAME,
    FILE_NAME,
    Content,
    HistoryFile,
    find_histories,
    has_ended,
    history_in,
    parse,
)
from fedhaw.history.following import HistoryFollower
from fedhaw.history.history import History, Vector
from fedhaw.history.lines import FORMAT, decode, encode, is_too_deep, plain
from fedhaw.history.records import (
    ClientFacts,
    EndRecord,
    Json,
    Learnt,
    Record,
    RoundRecord,
    RunRecord,
    finite,
    metrics_of,
    numbers_of,
)

__all__ = [
    "COMPRESSED_NAME",
    "FILE_NAME",
    "FORMAT",
    "ClientFacts",
    "Content",
    "EndRecord",
    "History",
    "HistoryError",
    "HistoryFile",
    "HistoryFollower",
    "Json",
    "Learnt",
    "Record",
    "RoundRecord",
    "RunRecord",
    "Vector",
    "decode",
    "encode",
    "find_histories",
    "finite",
    "has_ended",
    "history_in",
    "is_too_deep",
    "metrics_of",
    "numbers_of",
    "parse",
    "plain",
]

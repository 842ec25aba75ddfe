"""What the parent and a worker say to each other: a few numbers, never a pickled object.

The exception is the `Assignment` a worker reads when it starts: the model's template and the client
update are Python objects, cloudpickled once.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from fedhaw.clients import ClientUpdate
from fedhaw.models import Layout
from fedhaw.simulation.engines.base import ClientReport
from fedhaw.simulation.engines.shared_memory import Handle

READY = b"ready"
"""A worker's first word: it has everything and waits for clients."""

TASK = struct.Struct("<qq")
"""An order: the round and the client; it starts from the global model in shared memory."""

_NUMBERS = struct.Struct("<qddd")


@dataclass(frozen=True)
class Assignment:
    """All a worker needs to know before its first client; tensors are named by their handles."""

    module: nn.Module
    layout: Layout
    client_update: ClientUpdate
    seed: int
    device: str
    handles: Mapping[str, Handle]


def to_bytes(report: ClientReport) -> bytes:
    """How a worker says that its client is done, whose model is in shared memory by then."""
    numbers = _NUMBERS.pack(report.client, report.loss, report.seconds, report.length)
    return numbers + json.dumps([report.failure, dict(report.metrics)]).encode()


def from_bytes(data: bytes) -> ClientReport:
    """The report that a worker sent."""
    client, loss, seconds, length = _NUMBERS.unpack(data[: _NUMBERS.size])
    failure, metrics = json.loads(data[_NUMBERS.size :])
    return ClientReport(client, loss, seconds, failure, length, metrics)

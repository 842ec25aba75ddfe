"""What the parent and a worker say to each other: a few numbers, never a pickled object.

The exception is the `Assignment` a worker reads when it starts: the model's template and the client
update are Python objects, cloudpickled once.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import nn

from fedhaw.clients import ClientUpdate
from fedhaw.models import Layout
from fedhaw.simulation.engines.shared_memory import Handle

READY = b"ready"
"""A worker's first word: it has everything and waits for clients."""

_TASK = struct.Struct("<qq")
_ANSWER = struct.Struct("<ddd")


@dataclass(frozen=True)
class Assignment:
    """All a worker needs to know before its first client; tensors are named by their handles."""

    module: nn.Module
    layout: Layout
    client_update: ClientUpdate
    seed: int
    device: str
    x: Handle
    y: Handle
    rows: Handle
    offsets: Handle
    global_model: Handle
    client_models: Handle
    down: Handle
    memory: Handle
    new_memory: Handle
    up: Handle


@dataclass(frozen=True)
class Task:
    """An order to train this client in this round, from the global model in shared memory."""

    round_index: int
    client: int

    def to_bytes(self) -> bytes:
        """As it goes over the wire."""
        return _TASK.pack(self.round_index, self.client)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """As it came over the wire."""
        return cls(*_TASK.unpack(data))


@dataclass(frozen=True)
class Answer:
    """The client is done; its model is in shared memory unless there is a failure to tell of."""

    loss: float
    seconds: float
    failure: str | None
    length: float
    metrics: Mapping[str, float]

    def to_bytes(self) -> bytes:
        """As it goes over the wire."""
        words = json.dumps([self.failure, dict(self.metrics)]).encode()
        return _ANSWER.pack(self.loss, self.seconds, self.length) + words

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """As it came over the wire."""
        loss, seconds, length = _ANSWER.unpack(data[: _ANSWER.size])
        failure, metrics = json.loads(data[_ANSWER.size :])
        return cls(loss, seconds, failure, length, metrics)

"""A Flower grid in memory, whose clients answer, fail or stay silent as a test wants."""

import itertools
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Client = Callable[[Message], Message | None]


class MemoryGrid(Grid):
    """Nodes are functions from a message to a reply, or to None for no reply at all."""

    def __init__(self, clients: dict[int, Client], names: dict[int, str] | None = None) -> None:
        self.clients = clients
        self.names = names or {}
        self.sent: list[Message] = []
        self._replies: dict[str, Message] = {}
        self._ids = itertools.count(1)
        self.most_pulled = 0

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.clients)

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=n, name=self.names.get(n, "")) for n in self.clients]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        assert isinstance(messages, list)
        ids = []
        for message in messages:
            message_id = f"m{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id
            self.sent.append(message)
            ids.append(message_id)
            reply = self.clients[message.metadata.dst_node_id](message)
            if reply is not None:
                self._replies[message_id] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = [self._replies.pop(i) for i in message_ids if i in self._replies]
        self.most_pulled = max(self.most_pulled, len(found))
        return found

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages(self.push_messages(list(messages)))


def reply(
    message: Message,
    arrays: Any,
    client: str | int | None,
    examples: Any = 10,
    **metrics: float,
) -> Message:
    """A reply as an ordinary client sends it."""
    record = arrays if isinstance(arrays, ArrayRecord) else ArrayRecord(arrays)
    content = RecordDict({"arrays": record})
    content["metrics"] = MetricRecord({"num-examples": examples, **metrics})
    if client is not None:
        content["who"] = ConfigRecord({"client-id": client})
    return Message(content, reply_to=message)


def failure(message: Message, code: int, reason: str = "", by_superlink: bool = False) -> Message:
    """An error as the SuperNode or, with another sender, the SuperLink reports it."""
    error = Message(Error(code, reason), reply_to=message)
    if by_superlink:
        error.metadata.__dict__["_src_node_id"] = 1
    return error


def moving(client: str | int | None, step: float, examples: float = 10) -> Client:
    """A client that adds `step` to every floating-point number; it reports a loss."""

    def answer(message: Message) -> Message | None:
        record = message.content.array_records.get("arrays")
        if message.metadata.message_type != "train" or record is None:
            metrics = MetricRecord({"num-examples": examples, "accuracy": 0.5})
            content = RecordDict({"metrics": metrics})
            if client is not None:
                content["who"] = ConfigRecord({"client-id": client})
            return Message(content, reply_to=message)
        moved = {
            name: values + values.dtype.type(step) if values.dtype.kind == "f" else values + 1
            for name, values in ((n, a.numpy()) for n, a in record.items())
        }
        arrays = ArrayRecord()
        for name, values in moved.items():
            arrays[name] = Array(np.asarray(values))
        return reply(message, arrays, client, examples, loss=abs(step))

    return answer


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The pieces above, for tests to build federations of."""
    for name in ("_task_id", "_run_id", "_node_id"):  # messages can only be made within a run
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr("fedhaw.flower.cohort.LOOK_EVERY", 0.01)
    return SimpleNamespace(Grid=MemoryGrid, reply=reply, failure=failure, moving=moving)


@pytest.fixture
def arrays() -> ArrayRecord:
    """A small model with two layers and a whole-number counter."""
    random = np.random.default_rng(0)
    record = ArrayRecord()
    for name, shape in (("a.weight", (3, 4)), ("a.bias", (3,)), ("b.weight", (2, 3))):
        record[name] = Array(random.normal(size=shape).astype(np.float32))
    record["b.count"] = Array(np.array(7, dtype=np.int64))
    return record

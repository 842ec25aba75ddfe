"""A ClientApp for fedhaw's own models and client updates.

    def participant(context):
        k = int(context.node_config["partition-id"])
        ...
        return Participant(client=k, module=module, client_update=named("sgd", eta=0.01), x=x, y=y)

    app = client_app(participant)

A client's randomness depends on (seed, client, round) and nothing else, as in the simulator, so a
deployment repeats, and a simulation of the same federation gives the same models.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.clients import ClientUpdate, Trainer, Vectors, steps_of
from fedhaw.flower.beside import NodeMemory, to_record
from fedhaw.flower.errors import FlowerError
from fedhaw.flower.replies import ACCEPTED, BESIDE, MEMORY, TOLD, told_in
from fedhaw.flower.wire import Unreadable, decoded, pack
from fedhaw.models import Buffers, Evaluator, Layout
from fedhaw.models.threads import one_thread
from fedhaw.spellings import also_spelt


@also_spelt(update="client_update")  # its name in the first release
@dataclass(frozen=True, eq=False)
class Participant:
    """One client of a federation.

    Attributes:
        client: its number; with the seed and the round it fixes all randomness.
        module: the model's template.
        client_update: what the client does with the global model.
        x: (N, ...) its samples.
        y: (N,) their labels.
        x_test: (M, ...) samples to evaluate on; None: its own.
        y_test: (M,) their labels.
        buffers: what happens to batch norm's statistics, see `fedhaw.models.Layout`.
        seed: of the run.
        device: where to compute.
        name: what the server calls it, default its number.
    """

    client: int
    module: nn.Module
    client_update: ClientUpdate
    x: Tensor
    y: Tensor
    x_test: Tensor | None = None
    y_test: Tensor | None = None
    buffers: Buffers = "batch"
    seed: int = 0
    device: str = "cpu"
    name: str | None = None
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout.of(self.module, self.buffers))


Recruit: TypeAlias = Callable[[Context], Participant]
"""Makes a node's participant, from its node configuration and the run's."""


def client_app(participant: Recruit) -> ClientApp:
    """A ClientApp that trains, evaluates, and says who it is when the server asks.

    Args:
        participant: called for every message, as Flower starts a process for each.
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        content = _trained(participant(context), message.content, context.state)
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(_evaluated(participant(context), message.content), reply_to=message)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        who = participant(context)
        content = RecordDict({"metrics": MetricRecord({"num-examples": len(who.y)}), **_name(who)})
        return Message(content, reply_to=message)

    return app


def to_arrays(layout: Layout, vector: Tensor) -> ArrayRecord:
    """A flat model, (P,), as Flower's record: the layout's entries by name, in its order."""
    values = vector.detach().cpu().numpy()
    record = ArrayRecord()
    for entry in layout.entries:
        record[entry.name] = pack(values[entry.start : entry.stop], entry.shape, values.dtype)
    return record


def to_vector(layout: Layout, arrays: ArrayRecord) -> Tensor:
    """(P,) the flat model that `to_arrays` made a record of.

    Raises:
        FlowerError: the record does not hold this model.
    """
    vector = torch.empty(layout.size, dtype=torch.float32)
    for entry in layout.entries:
        try:
            values = decoded(arrays[entry.name])
        except (KeyError, Unreadable) as error:
            raise FlowerError(
                f"The server's arrays have no usable {entry.name!r}; server and clients must use "
                "the same model."
            ) from error
        if values.shape != entry.shape:
            raise FlowerError(
                f"The server's {entry.name!r} has shape {values.shape}, the client's has "
                f"{entry.shape}; server and clients must use the same model."
            )
        vector[entry.start : entry.stop] = torch.tensor(values).reshape(-1)
    return vector


@one_thread()  # as in the simulator
def _trained(who: Participant, content: RecordDict, state: RecordDict) -> RecordDict:
    model = to_vector(who.layout, _arrays(content)).to(who.device)
    if not len(who.y):
        raise FlowerError(f"Client {who.client} holds no samples; give it some, or leave it out.")
    x, y = who.x.to(who.device), who.y.to(who.device)
    train = Trainer(who.module, who.layout, who.client_update, x, y, who.seed, who.device)
    rows = torch.arange(len(y), device=x.device)
    server_round, start = _round(content), train.start
    beside: dict[str, ArrayRecord | ConfigRecord] = {}
    if not start.remembers:
        result = train(server_round - 1, who.client, rows, model)
    else:
        memory = NodeMemory(state, start.client)
        before, of = memory.recall(_accepted(content))
        down = _down(content, who)
        result = train(server_round - 1, who.client, rows, model, down, before)
        memory.keep(result.memory, server_round, before, of)
        beside = {BESIDE: to_record(result.up), TOLD: ConfigRecord({MEMORY: of})}
    metrics = MetricRecord({"num-examples": len(y), "train-loss": float(result.loss)})
    metrics.update({name: float(value) for name, value in result.metrics.items()})
    arrays = to_arrays(who.layout, result.model)
    return RecordDict({"arrays": arrays, "metrics": metrics, **_name(who), **beside})


def _evaluated(who: Participant, content: RecordDict) -> RecordDict:
    x = who.x if who.x_test is None else who.x_test
    y = who.y if who.y_test is None else who.y_test
    steps = steps_of(who.client_update)
    loss = cross_entropy if steps is None else steps.loss
    model = to_vector(who.layout, _arrays(content)).to(who.device)
    result = Evaluator(who.module, who.layout, loss, who.device)(model, x, y)
    metrics = MetricRecord({"num-examples": len(y), **result})
    return RecordDict({"metrics": metrics, **_name(who)})


def _name(who: Participant) -> dict[str, ConfigRecord]:
    return {"client": ConfigRecord({"client-id": who.name or str(who.client)})}


def _arrays(content: RecordDict) -> ArrayRecord:
    for key, record in content.items():
        if isinstance(record, ArrayRecord) and key != BESIDE:
            return record
    raise FlowerError("The server's message holds no model; use fedhaw.flower.RuleStrategy there.")


def _accepted(content: RecordDict) -> int:
    accepted = told_in(content, ACCEPTED)
    if accepted is None:
        raise FlowerError(
            "The server does not know that its clients have a memory; give its RuleStrategy the "
            "same client_update= as the clients."
        )
    return accepted


def _down(content: RecordDict, who: Participant) -> Vectors:
    record = content.get(BESIDE)
    vectors = {} if not isinstance(record, ArrayRecord) else dict(record.items())
    try:
        return {n: torch.tensor(decoded(array)).to(who.device) for n, array in vectors.items()}
    except Unreadable as error:
        raise FlowerError(f"What the server sent beside the model {error}.") from error


def _round(content: RecordDict) -> int:
    for record in content.values():
        number = record.get("server-round") if isinstance(record, ConfigRecord) else None
        if isinstance(number, int):
            return number
    raise FlowerError(
        "The server's message does not say which round it is; use RuleStrategy there."
    )

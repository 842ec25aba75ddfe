"""The ClientApp for fedhaw's own models, called as Flower calls it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedhaw.clients import Trainer, named
from fedhaw.flower import FlowerError
from fedhaw.flower.client import Participant, client_app, to_arrays, to_vector
from fedhaw.models import Layout, mlp, resnet18

SAMPLES = torch.Generator().manual_seed(0)
X, Y = torch.randn(40, 6, generator=SAMPLES), torch.arange(40) % 3


def participant(_: Context) -> Participant:
    torch.manual_seed(1)
    update = named("fedprox+adam", eta=0.01, batch=8)
    return Participant(client=4, module=mlp((6, 5, 3)), client_update=update, x=X, y=Y, seed=9)


def ask(kind: str, arrays: ArrayRecord | None, **config: Any) -> RecordDict:
    content = RecordDict({"config": ConfigRecord(config)})
    if arrays is not None:
        content["arrays"] = arrays
    message = Message(content, dst_node_id=7, message_type=kind)
    context = Context(
        run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={}, series_id=0
    )
    reply = client_app(participant)(message, context)
    return reply.content


def test_trains_as_the_simulators_clients_do(flower: SimpleNamespace) -> None:
    who = participant(None)  # type: ignore[arg-type]
    model = who.layout.flatten(who.module)
    answer = ask("train", to_arrays(who.layout, model), **{"server-round": 3})
    train = Trainer(who.module, who.layout, who.client_update, X, Y, seed=9)
    result = train(2, 4, torch.arange(40), model)
    loss, expected = result.loss, result.model
    assert torch.equal(to_vector(who.layout, answer.array_records["arrays"]), expected)
    assert dict(answer.metric_records["metrics"]) == {"num-examples": 40, "train-loss": loss}
    assert answer.config_records["client"]["client-id"] == "4"


def test_evaluates_and_says_who_it_is(flower: SimpleNamespace) -> None:
    who = participant(None)  # type: ignore[arg-type]
    arrays = to_arrays(who.layout, who.layout.flatten(who.module))
    metrics = ask("evaluate", arrays, **{"server-round": 1}).metric_records["metrics"]
    assert metrics["num-examples"] == 40
    assert 0 <= float(metrics["accuracy"]) <= 1  # type: ignore[arg-type]
    answer = ask("query", None)
    assert answer.metric_records["metrics"]["num-examples"] == 40
    assert answer.config_records["client"]["client-id"] == "4"


def test_the_arrays_are_named_as_in_the_module() -> None:
    module = resnet18(10, width=4)
    for buffers in ("batch", "average"):
        layout = Layout.of(module, buffers)
        arrays = to_arrays(layout, layout.flatten(module))
        assert set(arrays) <= set(module.state_dict())
        assert torch.equal(to_vector(layout, arrays), layout.flatten(module))


def test_another_model_is_said_clearly(flower: SimpleNamespace) -> None:
    layout = participant(None).layout  # type: ignore[arg-type]
    with pytest.raises(FlowerError, match="same model"):
        to_vector(layout, ArrayRecord())
    arrays = to_arrays(layout, torch.zeros(layout.size))
    arrays["0.weight" if "0.weight" in arrays else next(iter(arrays))] = Array(torch.zeros(2))
    with pytest.raises(FlowerError, match="has shape"):
        to_vector(layout, arrays)
    with pytest.raises(FlowerError, match="holds no model"):
        ask("train", None, **{"server-round": 1})
    with pytest.raises(FlowerError, match="which round"):
        ask("train", to_arrays(layout, torch.zeros(layout.size)))

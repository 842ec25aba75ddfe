"""Clients with a memory in Flower: as in the simulator, whoever is lost, forgets or lies."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

import fedhaw
from fedhaw.clients import SCAFFOLD, ClientUpdate, FedDyn, FedNova, LocalUpdate
from fedhaw.flower import CheckpointError, RuleStrategy
from fedhaw.flower.client import Participant, client_app, to_arrays, to_vector
from fedhaw.flower.replies import BESIDE
from fedhaw.models import Layout, mlp

STEPS = LocalUpdate(eta=0.1, batch=8, epochs=2)
ALGORITHMS = [SCAFFOLD(STEPS), FedDyn(STEPS), FedNova(STEPS)]
CLIENTS = 3


def samples(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(client)
    x = random.normal(size=(20 + 10 * client, 6)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy((x[:, client] > 0).astype(np.int64))


def same(who: Participant, context: Context) -> Participant:
    return who


class Nodes:
    """Nodes with contexts of their own, each with the ready ClientApp."""

    def __init__(self, flower: SimpleNamespace, update: ClientUpdate) -> None:
        self.contexts = {k: Context(1, k, {}, RecordDict(), {}) for k in range(CLIENTS)}
        self.lost: dict[int, set[int]] = {}
        self.change: Any = lambda client, reply: reply
        torch.manual_seed(0)  # the same first model for all, whichever test comes first
        self.module = mlp((6, 5, 2))
        self.layout = Layout.of(self.module)
        self._apps = {}
        for k in range(CLIENTS):
            x, y = samples(k)
            who = Participant(client=k, module=self.module, client_update=update, x=x, y=y)
            self._apps[k] = client_app(partial(same, who))
        self.grid = flower.Grid({10 + k: self._answer(k) for k in range(CLIENTS)})

    def _answer(self, k: int) -> Any:
        def answer(message: Message) -> Message | None:
            config = message.content.config_records["config"]
            reply = self._apps[k](message, self.contexts[k])
            if k in self.lost.get(int(str(config["server-round"])), set()):
                return None
            changed: Message = self.change(k, reply)
            return changed

        return answer

    def run(
        self, update: ClientUpdate | None, rounds: int, **more: Any
    ) -> tuple[torch.Tensor, Any]:
        torch.manual_seed(0)
        initial = to_arrays(self.layout, self.layout.flatten(self.module))
        strategy = RuleStrategy(
            fedhaw.FedAvg(),
            fraction_evaluate=0.0,
            round_deadline=0.05,
            client_update=update,
            late_rounds=0,
            length_limit=0,
            **more,
        )
        result = strategy.start(self.grid, initial, num_rounds=rounds)
        return to_vector(self.layout, result.arrays), strategy


def simulated(nodes: Nodes, update: ClientUpdate, rounds: int) -> torch.Tensor:
    """What the simulator makes of the same federation."""
    parts = [samples(k) for k in range(CLIENTS)]
    x, y = (torch.cat(some).numpy() for some in zip(*parts, strict=True))
    ends = np.cumsum([len(part[1]) for part in parts])
    split = np.split(np.arange(len(y)), ends[:-1])
    data = fedhaw.data.Dataset("tiny", x, y, x, y, 2)
    history = fedhaw.simulate(
        fedhaw.FedAvg(),
        data,
        split=split,
        model=nodes.module,
        client_update=update,
        rounds=rounds,
        engine="sequential",
        length_limit=0,
    )
    assert history.model is not None
    return torch.as_tensor(history.model)


@pytest.mark.parametrize("update", ALGORITHMS, ids=lambda update: type(update).__name__)
def test_a_deployment_gives_what_the_simulator_gives(
    flower: SimpleNamespace, update: ClientUpdate
) -> None:
    nodes = Nodes(flower, update)
    deployed, _ = nodes.run(update, 4)
    torch.testing.assert_close(deployed, simulated(nodes, update, 4), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("update", ALGORITHMS[:2], ids=lambda update: type(update).__name__)
def test_a_memory_moves_on_only_when_the_upload_arrived(
    flower: SimpleNamespace, update: ClientUpdate
) -> None:
    """A client that trained in vain goes on as if it had not: from the memory before."""
    nodes = Nodes(flower, update)
    nodes.lost = {2: {1}}
    torch.manual_seed(0)
    # `silent` nodes are spared for a round, so that client 1 is asked again in round 4.
    _, strategy = nodes.run(update, 4)
    assert [set(report.lost) for report in strategy.reports] == [set(), {"1"}, {"1"}, set()]
    assert not any("has lost" in (report.note or "") for report in strategy.reports)
    assert strategy._aggregator.beside.accepted == {"0": 4, "1": 4, "2": 4}
    before = nodes.contexts[1].state["fedhaw-memory-before-of"]
    assert before == ConfigRecord({"memory": 1})


def test_a_node_that_was_restarted_starts_afresh_and_is_named(flower: SimpleNamespace) -> None:
    update = SCAFFOLD(STEPS)
    nodes = Nodes(flower, update)

    def forget(client: int, reply: Message) -> Message:
        if len(nodes.grid.sent) == 2 * CLIENTS:  # the last answer of round 2
            nodes.contexts[2].state = RecordDict()
        return reply

    nodes.change = forget
    _, strategy = nodes.run(update, 4)
    said = "client 2 has lost what it remembered of round 2 and starts afresh"
    assert [report.note for report in strategy.reports] == [None, None, said, None]


def test_a_server_that_goes_on_has_its_memory(flower: SimpleNamespace, tmp_path: Path) -> None:
    update = SCAFFOLD(STEPS)
    whole, _ = Nodes(flower, update).run(update, 4)
    nodes = Nodes(flower, update)
    nodes.run(update, 2, checkpoint=tmp_path / "c.safetensors")
    halves, strategy = nodes.run(update, 4, checkpoint=tmp_path / "c.safetensors")
    assert torch.equal(whole, halves)
    said = [report.note for report in strategy.reports]
    assert said == ["the server was started again after round 2", None]
    with pytest.raises(CheckpointError, match="another client algorithm"):
        nodes.run(FedDyn(STEPS), 5, checkpoint=tmp_path / "c.safetensors")


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda c: c * np.nan, "not finite"),
        (lambda c: c * 1e9, "times as long as usual"),
        (lambda c: c[:3], "another shape"),
        (lambda c: c.astype(np.float64), "another shape or type"),
        (None, "beside the model came nothing"),
    ],
)
def test_what_comes_beside_a_model_is_not_trusted_either(
    flower: SimpleNamespace, lie: Any, reason: str
) -> None:
    update = SCAFFOLD(STEPS)
    nodes = Nodes(flower, update)

    def change(client: int, reply: Message) -> Message:
        if client == 1:
            record = reply.content.array_records[BESIDE]
            if lie is None:
                del reply.content[BESIDE]
            else:
                record["c"] = Array(np.asarray(lie(record["c"].numpy())))
        return reply

    nodes.change = change
    model, strategy = nodes.run(update, 2)
    assert all(reason in report.lost["1"] for report in strategy.reports)
    assert bool(model.isfinite().all())


def test_clients_with_a_memory_need_a_server_that_knows(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    nodes = Nodes(flower, SCAFFOLD(STEPS))
    with pytest.raises(fedhaw.FedhawError, match="client_update="):
        nodes.run(STEPS, 1)

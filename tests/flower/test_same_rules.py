"""Flower's own strategies, an independent account of the rules that both have.

Where the definitions differ, Flower's is moved to ours before they are compared:

- FedAdagrad, FedAdam and FedYogi start v at tau^2, as in the paper; Flower's start at 0. FedAdam
  has no bias correction; Flower's has one, which has worn off in a late round.
- MultiKrum takes the plain mean of the chosen models; Flower's weighs them by data. So all clients
  have the same data there.
- All rules leave a lost client its weight or, if they count heads, leave it out; Flower never sees
  it. So nothing is lost here.
"""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy
from flwr.supercore.task_identity import TaskIdentity
from suite import RULES, Federation

import fedhaw
from fedhaw.rules import Round, Rule

LATE = 10_000
TAU = 1e-3


def from_tau_squared(of: Any) -> Any:
    of.v_t = {"w": np.full_like(Federation().start, TAU**2)}
    return of


def counterparts() -> dict[str, Any]:
    return {
        "fedavg-arrivals": strategy.FedAvg(),
        "fedavgm": strategy.FedAvgM(server_momentum=0.9),
        "fedadagrad": from_tau_squared(strategy.FedAdagrad(eta=0.1, tau=TAU)),
        "fedadam": from_tau_squared(strategy.FedAdam(eta=0.1, tau=TAU)),
        "fedyogi": from_tau_squared(strategy.FedYogi(eta=0.1, tau=TAU)),
        "median": strategy.FedMedian(),
        "trimmed-mean": strategy.FedTrimmedAvg(beta=0.2),
        "krum": strategy.Krum(num_malicious_nodes=1),
        "multi-krum": strategy.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4),
    }


@pytest.fixture(autouse=True)
def within_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_task_id", "_run_id", "_node_id"):  # messages can only be made within a run
        monkeypatch.setattr(TaskIdentity, name, 1)


def replies(W: np.ndarray, N: np.ndarray) -> list[Message]:
    made = []
    for k, (model, examples) in enumerate(zip(W, N, strict=True)):
        asked = Message(RecordDict(), dst_node_id=k + 1, message_type="train")
        content = RecordDict({"arrays": ArrayRecord({"w": Array(model)})})
        content["metrics"] = MetricRecord({"num-examples": int(examples)})
        made.append(Message(content, reply_to=asked))
    return made


@pytest.mark.parametrize("name", counterparts())
def test_the_same_models_come_out(name: str) -> None:
    theirs, rule = counterparts()[name], RULES[name]
    federation = Federation(5, seed=6)
    if name == "multi-krum":
        federation.num_examples[:] = 10
    w = federation.start
    theirs.current_arrays = (
        ArrayRecord({"w": Array(w)}) if isinstance(theirs, strategy.FedAvgM) else {"w": w}
    )
    for t, (asked, model, _) in enumerate(federation.rounds(rule, "numpy", 5)):
        record, _ = theirs.aggregate_train(
            LATE + t, replies(np.asarray(asked.client_models), federation.num_examples)
        )
        np.testing.assert_allclose(record["w"].numpy(), model, rtol=1e-9, atol=1e-12)
        if not isinstance(theirs, strategy.FedAvgM):
            theirs.current_arrays = {"w": model}


@pytest.mark.parametrize("f", [0, 1, 2])
def test_krum_chooses_the_same_among_liars(f: int) -> None:
    for seed in range(10):
        federation = Federation(8, seed)
        W = federation.client_models(federation.start, 0)
        W[:f] += 5 * np.random.default_rng(seed).standard_normal(W[:f].shape)
        N = np.full(8, 10)
        rules: list[tuple[Rule[Any], Any]] = [
            (fedhaw.Krum(f), strategy.Krum(num_malicious_nodes=f)),
            (
                fedhaw.MultiKrum(f, 3),
                strategy.MultiKrum(num_malicious_nodes=f, num_nodes_to_select=3),
            ),
        ]
        for rule, theirs in rules:
            model, _ = rule.aggregate(rule.init(), Round(federation.start, W, N))
            record, _ = theirs.aggregate_train(1, replies(W, N))
            np.testing.assert_allclose(record["w"].numpy(), model, rtol=1e-10)

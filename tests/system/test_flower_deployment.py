"""A SuperLink and three SuperNodes on loopback, and what can happen to them."""

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import fedhaw
from fedhaw.rules import Round

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "flower"


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


flower = _loaded("flower_processes")


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with flower.deployment(tmp_path_factory.mktemp("flower")) as made:
        made.start_link()
        for k in range(3):
            made.start_node(k)
        yield made


def expected(rounds: int, lost: dict[int, set[int]]) -> tuple[NDArray[Any], list[Any]]:
    """What FedHAW makes of the test app's clients, computed in this process."""
    rule = fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1)
    w = np.concatenate([np.linspace(-1, 1, 12), np.ones(3)]).astype(np.float32)
    state, weights = rule.init(), []
    for t in range(1, rounds + 1):
        gone = lost.get(t, set())
        W = np.stack([w if k in gone else w + np.float32(0.01 * (k + 1) * t) for k in range(3)])
        arrived = [k not in gone for k in range(3)]
        w, state = rule.aggregate(state, Round(w, W, [10, 20, 30], arrived, ("0", "1", "2")))
        weights.append(dict(zip(state.clients, state.weights, strict=True)))
    return w, weights


def test_equals_the_simulator(three_nodes: Any, tmp_path: Path) -> None:
    """With clients that remember, so that all that travels is put to the test."""
    from fedhaw.experiments.recipe import read_recipe
    from fedhaw.experiments.running import run_recipe
    from fedhaw.simulation import History

    three_nodes.run(EXAMPLE, rounds=3, out=tmp_path, round_deadline=120.0, client_update="scaffold")
    recipe = read_recipe(
        EXAMPLE / "recipe.toml", rounds=3, engine="sequential", client_update="scaffold"
    )
    simulated = run_recipe(recipe, None)
    three_nodes.wait_for(lambda: flower.finished(tmp_path), "three rounds", 180)

    deployed = History.read(tmp_path)
    assert deployed.lost.tolist() == [0, 0, 0]
    model = load_file(tmp_path / "checkpoint.safetensors")["model"]
    assert simulated.model is not None
    np.testing.assert_allclose(model, simulated.model, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deployed.weights, simulated.weights, rtol=1e-5)
    np.testing.assert_allclose(deployed.accuracy, simulated.accuracy, atol=0.003)
    assert deployed.run.clients == simulated.run.clients
    assert not any(record.get("note") for record in flower.records(tmp_path))


@pytest.mark.slow
def test_a_node_that_is_killed_and_restarted_starts_afresh_and_is_named(
    three_nodes: Any, tmp_path: Path
) -> None:
    """What it remembered was in the node that is gone; the others go on from theirs."""
    three_nodes.run(EXAMPLE, rounds=9, out=tmp_path, round_deadline=30.0, client_update="scaffold")
    three_nodes.wait_for(lambda: len(flower.records(tmp_path)) >= 3, "two rounds", 180)
    three_nodes.kill("node1", signal.SIGKILL)
    three_nodes.start_node(1)
    three_nodes.wait_for(lambda: flower.finished(tmp_path), "the other rounds", 400)
    rounds = [r for r in flower.records(tmp_path) if r["kind"] == "round"]
    forgot = [r["note"] for r in rounds if "has lost what it remembered" in (r.get("note") or "")]
    assert len(forgot) == 1, rounds
    assert "client 1 " in forgot[0]
    assert "starts afresh" in forgot[0]
    assert rounds[-1]["lost"] == {}


def test_garbage_and_everybody_lost_and_a_node_killed_in_mid_round(
    three_nodes: Any, tmp_path: Path
) -> None:
    plan = {
        "2": {"0": "nan", "1": "shape"},
        "3": {"0": "raise", "1": "raise", "2": "raise"},
        "4": {"2": "sleep"},
    }
    already = three_nodes.log("node2").count("Start `flwr-clientapp`")
    three_nodes.run(flower.APP, plan=plan, rounds=5, deadline=30.0, out=tmp_path)
    three_nodes.wait_for(
        lambda: three_nodes.log("node2").count("Start `flwr-clientapp`") == already + 4,
        "client 2 to begin round 4",
        120,
    )
    three_nodes.kill("node2", signal.SIGKILL)
    three_nodes.wait_for(lambda: flower.finished(tmp_path), "five rounds", 120)

    rounds = [r for r in flower.records(tmp_path) if r["kind"] == "round"]
    reasons = [record["lost"] for record in rounds]
    assert reasons[0] == {}
    assert reasons[1] == {
        "0": "not finite",
        "1": "wrong shape: 'a.weight' is (4, 3), the global model's (3, 4)",
    }
    assert set(reasons[2]) == {"0", "1", "2"}
    assert all("as planned" in reason for reason in reasons[2].values())
    assert reasons[3] == {"2": "no reply before the deadline"}
    # Flower still lists the dead node; not asking it saves the round its deadline.
    assert reasons[4] == {"2": "silent before, to be asked again in round 6"}

    w, weights = expected(5, {2: {0, 1}, 3: {0, 1, 2}, 4: {2}, 5: {2}})
    model = load_file(tmp_path / "checkpoint.safetensors")
    np.testing.assert_array_equal(model["model"], w)
    assert model["rest.b.count"] == 4
    assert rounds[4]["weights"] == weights[4]


@pytest.mark.slow
def test_lies_are_refused_and_doubted_over_a_real_network(three_nodes: Any, tmp_path: Path) -> None:
    if "node2" not in three_nodes.processes:
        three_nodes.start_node(2)
    plan = {"2": {"0": "huge"}, "3": {"1": "boast"}}
    three_nodes.run(flower.APP, plan=plan, rounds=4, deadline=60.0, out=tmp_path)
    three_nodes.wait_for(lambda: flower.finished(tmp_path), "four rounds", 240)
    rounds = [r for r in flower.records(tmp_path) if r["kind"] == "round"]
    assert [set(record["lost"]) for record in rounds] == [set(), {"0"}, set(), set()]
    assert "times as long as usual" in rounds[1]["lost"]["0"]
    assert rounds[2]["note"] == "client 1 says it has 1e+12 examples after 20, which count"
    w, weights = expected(4, {2: {0}})
    np.testing.assert_array_equal(load_file(tmp_path / "checkpoint.safetensors")["model"], w)
    assert rounds[3]["weights"] == weights[3]


@pytest.mark.slow
def test_a_supervised_run_whose_server_is_killed_is_started_again(
    three_nodes: Any, tmp_path: Path
) -> None:
    if "node2" not in three_nodes.processes:
        three_nodes.start_node(2)
    settings = f"rounds=3 out='{tmp_path}'"
    script = str(EXAMPLE / "service" / "supervise.py")
    three_nodes.start("supervisor", "python", script, str(flower.APP), "loopback", "-c", settings)
    three_nodes.wait_for(lambda: len(flower.records(tmp_path)) >= 2, "a round", 120)
    servers = [
        pid
        for pid in flower.descendants(three_nodes.processes["link"].pid)
        if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert servers
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    three_nodes.wait_for(lambda: flower.finished(tmp_path), "the other rounds", 240)
    three_nodes.wait_for(
        lambda: three_nodes.processes["supervisor"].poll() is not None, "the supervisor", 60
    )
    assert three_nodes.processes.pop("supervisor").returncode == 0
    assert three_nodes.log("supervisor").count("is started") == 2
    rounds = [r for r in flower.records(tmp_path) if r["kind"] == "round"]
    assert [record["weights"] for record in rounds] == expected(3, {})[1]


def test_server_killed_and_resumed(three_nodes: Any, tmp_path: Path) -> None:
    if "node2" not in three_nodes.processes:
        three_nodes.start_node(2)
    three_nodes.run(flower.APP, rounds=2, out=tmp_path)
    three_nodes.wait_for(lambda: len(flower.records(tmp_path)) >= 2, "a round", 120)
    three_nodes.kill("link", signal.SIGKILL)  # and with it the ServerApp
    done = len(flower.records(tmp_path)) - 1
    assert done < 2
    for k in range(3):
        three_nodes.kill(f"node{k}")

    three_nodes.start_link()
    for k in (2, 0, 1):
        three_nodes.start_node(k)
    three_nodes.run(flower.APP, rounds=2, out=tmp_path)
    three_nodes.wait_for(lambda: flower.finished(tmp_path), "the other round", 120)
    w, weights = expected(2, {})
    np.testing.assert_array_equal(load_file(tmp_path / "checkpoint.safetensors")["model"], w)
    rounds = [r for r in flower.records(tmp_path) if r["kind"] == "round"]
    assert [record["round"] for record in rounds] == [0, 1]
    assert [record["weights"] for record in rounds] == weights

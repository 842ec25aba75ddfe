"""What Prometheus sees of a running server."""

import socket
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ArrayRecord, MetricRecord

import fedhaw
from fedhaw.flower import FlowerError, InvalidSetting, RuleStrategy

pytest.importorskip("prometheus_client", reason='pip install "fedhaw[monitor]"')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_rounds_clients_weights_and_what_was_learnt(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    port, pages = free_port(), []

    def look(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            pages.append(page.read().decode())
        return MetricRecord({"accuracy": 0.5})

    def broken(message: Any) -> Any:
        return flower.failure(message, 2, "ValueError: no data")

    clients = {1: flower.moving("1", 0.1), 2: flower.moving("2", 0.3), 3: broken}
    strategy = RuleStrategy(
        fedhaw.FedHAW(0.1, 1e-3, 1e-2), fraction_evaluate=0.0, monitor=f"127.0.0.1:{port}"
    )
    strategy.start(flower.Grid(clients), arrays, num_rounds=3, evaluate_fn=look)
    last = pages[-1].splitlines()
    assert "fedhaw_round 2.0" in last  # the third is being evaluated
    assert "fedhaw_rounds 3.0" in last
    assert 'fedhaw_clients{what="lost"} 1.0' in last
    assert 'fedhaw_clients{what="asked"} 3.0' in last
    assert 'fedhaw_client_lost_total{client="node 3"} 2.0' in last
    assert 'fedhaw_measured{name="accuracy"} 0.5' in last
    for begin in ('fedhaw_weight{client="1"}', 'fedhaw_learnt{client="",name="gamma"}'):
        assert any(line.startswith(begin) for line in last)
    # The run is over: nobody listens any more.
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


def test_what_is_learnt_of_each_client_is_told_by_its_name(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    pages: list[str] = []

    def look(server_round: int, arrays: ArrayRecord) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            pages.append(page.read().decode())

    port, clients = free_port(), {k: flower.moving(str(k), 0.1 * k) for k in (1, 2, 3)}
    strategy = RuleStrategy(fraction_evaluate=0.0, monitor=port)  # the default rule
    strategy.start(flower.Grid(clients), arrays, num_rounds=2, evaluate_fn=look)
    assert 'fedhaw_learnt{client="2",name="growth"}' in pages[-1]
    assert 'fedhaw_learnt{client="",name="momentum"}' in pages[-1]


def test_a_place_that_is_taken_gets_a_sentence(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        strategy = RuleStrategy(monitor=taken.getsockname()[1])
        with pytest.raises(FlowerError, match="give a free address"):
            strategy.start(flower.Grid({}), arrays, num_rounds=1)


def test_nonsense_is_no_address(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    for nonsense in ("here", "127.0.0.1:http", 99999):
        with pytest.raises(InvalidSetting, match="monitor is"):
            RuleStrategy(monitor=nonsense).start(flower.Grid({}), arrays, num_rounds=1)

"""Flower's simulation engine: Ray, two workers of one core, its own FedAvg strategy."""

import logging
import os
import queue
import threading
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from simulation_peers.workload import Rounds, Workload, workload


def client_app(name: str, data: str) -> Any:
    """A ClientApp in the style of Flower's quickstart, its samples loaded once a process."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Any, context: Any) -> Any:
        work = workload(name, data)
        rows = torch.from_numpy(work.parts[int(context.node_config["partition-id"])])
        samples = TensorDataset(work.x[rows], work.y[rows])
        module = work.module()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(module.parameters(), lr=work.eta)
        for x, y in DataLoader(samples, batch_size=work.batch, shuffle=True):
            optimiser.zero_grad()
            cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        content = RecordDict(
            {
                "arrays": ArrayRecord(module.state_dict()),
                "metrics": MetricRecord({"num-examples": len(rows)}),
            }
        )
        return Message(content=content, reply_to=message)

    return app


def rounds(work: Workload, name: str, data: str) -> Rounds:
    os.environ |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    logging.disable(logging.WARNING)
    # Flower runs its own loop; two queues let it do one round when asked.
    asked: queue.Queue[None] = queue.Queue()
    done: queue.Queue[None] = queue.Queue()
    # Flower wants the main thread for itself no more than Ray does: a daemon thread will do.
    run = threading.Thread(target=_serve, args=(work, name, data, asked, done), daemon=True)
    run.start()
    while True:
        asked.put(None)
        while True:
            try:
                done.get(timeout=1)
                break
            except queue.Empty:
                assert run.is_alive(), "Flower's simulation ended"
        yield


def _serve(work: Workload, name: str, data: str, asked: Any, done: Any) -> None:
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    server = ServerApp()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        clients = len(work.parts)
        strategy = FedAvg(
            fraction_train=work.cohort / clients,
            fraction_evaluate=0.0,
            min_train_nodes=work.cohort,
            min_available_nodes=clients,
        )
        arrays = ArrayRecord(work.module().state_dict())
        index = 0
        while True:
            asked.get()
            index += 1
            messages = strategy.configure_train(index, arrays, ConfigRecord(), grid)
            replies = grid.send_and_receive(messages)
            averaged, _ = strategy.aggregate_train(index, replies)
            assert averaged is not None
            arrays = averaged
            done.put(None)

    run_simulation(
        server_app=server,
        client_app=client_app(name, data),
        num_supernodes=len(work.parts),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "log_to_driver": False, "include_dashboard": False},
        },
    )

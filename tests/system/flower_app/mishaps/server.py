"""FedHAW over clients that misbehave."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import fedhaw
from fedhaw.flower import RuleStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    out, clients = Path(str(config["out"])), int(config["clients"])
    arrays = ArrayRecord()
    arrays["a.weight"] = Array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    arrays["a.bias"] = Array(np.ones(3, np.float32))
    arrays["b.count"] = Array(np.array(0))
    strategy = RuleStrategy(
        fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1),
        fraction_evaluate=0.0,
        nodes_at_start=clients,
        min_available_nodes=1,
        min_train_nodes=1,
        round_deadline=float(config["deadline"]),
        node_clients={f"client-{k}": str(k) for k in range(clients)} if config["bound"] else None,
        checkpoint=out / "checkpoint.safetensors",
        history=out / "history.jsonl",
    )
    strategy.start(grid, arrays, num_rounds=int(config["rounds"]))

"""FedHAW-auto in a Flower app: the line that differs from Flower's own quickstart is marked.

This is the ServerApp of an app; its clients stay as they are, in whatever framework. `flwr run`
starts it, or Flower's simulation (docs/flower.md); examples/flower is a whole app with both parts.
"""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedhaw.flower import RuleStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    first_model = ArrayRecord([np.zeros((10, 784), np.float32), np.zeros(10, np.float32)])
    strategy = RuleStrategy()  # this line; it was: strategy = FedAvg()
    result = strategy.start(grid, initial_arrays=first_model, num_rounds=3)
    print(f"model of {sum(a.size for a in result.arrays.to_numpy_ndarrays())} numbers")


if __name__ == "__main__":
    print("Start it with `flwr run`; see docs/flower.md.")

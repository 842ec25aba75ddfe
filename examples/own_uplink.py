"""Lost uploads as a network of your own loses them: from a trace, or from a rule you write.

A trace is a CSV file with a line for each lost upload, both counted from 0, as a log of a real
deployment would give it. The same losses meet every rule, so the comparison is fair.

`fedhaw compare --uplink outages.csv` does the same with a report.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedhaw

TRACE = Path("outages.csv")


class NightShift:
    """An uplink of your own: odd clients are switched off in the second half of a day.

    Let `lost` depend on its arguments only: then a resumed run sees the same losses.
    """

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> NDArray[np.bool_]:
        night = round_index % 10 >= 5
        return np.array([night and client % 2 == 1 for client in clients])


if __name__ == "__main__":
    # Clients 0 to 3 fall silent in round 4 and stay so: what a broken base station leaves behind.
    lines = [f"{t},{k}" for t in range(4, 12) for k in range(4)]
    TRACE.write_text("round,client\n" + "\n".join(lines) + "\n")
    uplinks: dict[str, Path | NightShift] = {"trace": TRACE, "nights": NightShift()}
    for name, uplink in uplinks.items():
        for rule in (fedhaw.FedAvg(), fedhaw.FedHAWAuto()):
            history = fedhaw.simulate(rule, "mnist-5k", uplink=uplink, rounds=12)
            print(
                f"{name}: {type(rule).__name__:10}  {history.lost.sum()} uploads lost, "
                f"accuracy {history.accuracy[-1]:.3f}"
            )

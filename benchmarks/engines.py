"""Which engine is fastest for which federation, and how far behind the best `auto` is.

    python benchmarks/engines.py [--only TEXT] [--turns N] [--save]

Every federation has a fresh process, on all cores and on one, in which the engines take turns of
as many rounds as `sequential` does in half a second, 4 to 50. Seconds are those of training a
round. Of a turn its second half counts, because the first ten rounds of a small model are slower in
a new process and people run hundreds; of that the lower quartile, and of the turns the fastest, so
that what else the machine does matters least. `auto` must be within 15 % of the best. A federation
in which it is not is measured again in three times as many turns, and the fastest of all count.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from record import Record

ENGINES = ("sequential", "processes", "stacked")
LIMIT = 1.15
# model, batch, clients, samples of each
FEDERATIONS: dict[str, tuple[str, int, int, int]] = {
    f"{model}, batch {batch}, {clients} x {samples}": (model, batch, clients, samples)
    for model, batch, clients, samples in (
        *product(("mlp", "logistic"), (10, 32), (10,), (50, 500)),
        *product(("mlp", "logistic"), (32,), (100,), (50,)),
        *product(("mlp", "logistic"), (64,), (10,), (500, 6000)),
        *product(("mlp-512-512", "mlp adam", "mlp scaffold"), (10, 64), (10,), (500,)),
        *product(("tanh",), (10, 64), (10,), (50, 500)),
        *product(("tanh",), (64,), (100,), (50,)),
        *product(("cnn",), (10, 64), (10,), (50,)),
        *product(("resnet18-8",), (64,), (4,), (128,)),
    )
}


def tanh(input_shape: tuple[int, ...], classes: int) -> Any:
    """A module without a closed form."""
    from torch import nn

    inputs = int(np.prod(input_shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, classes))


def federation(name: str) -> tuple[Any, dict[str, Any]]:
    """The data of a federation, random, and its settings."""
    from fedhaw.data import Dataset

    model, batch, clients, samples = FEDERATIONS[name]
    model, _, update = model.partition(" ")
    random = np.random.default_rng(0)
    shape = (32, 32, 3) if model == "resnet18-8" else (28, 28)
    many, few = clients * samples, 10
    pixels = random.integers(0, 256, (many + few, *shape), dtype=np.uint8)
    labels = random.integers(0, 10, many + few)
    data = Dataset("random", pixels[few:], labels[few:], pixels[:few], labels[:few], 10)
    settings = {"clients": clients, "batch": batch, "epochs": 1, "split": "iid"}
    settings |= {"client_update": update or "sgd"}
    return data, settings | {"model": f"{__file__}:tanh" if model == "tanh" else model}


def measure(name: str, cores: int, turns: int) -> tuple[dict[str, float], str]:
    """The seconds of a round by engine, and the engine that `auto` is."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import fedhaw
    from fedhaw.settings import fill
    from fedhaw.simulation.engines.choice import choose
    from fedhaw.simulation.federation import Federation

    data, settings = federation(name)
    settings |= {"eta": 1e-3}

    def seconds(engine: str, rounds: int) -> float:
        asked = settings | {"engine": engine, "rounds": rounds, "evaluate_every": rounds}
        history = fedhaw.simulate(fedhaw.FedAvg(), data, **asked)
        later = [record.seconds["train"] for record in history.records[rounds // 2 :]]
        return float(np.quantile(later, 0.25))

    rounds = int(np.clip(0.5 / seconds("sequential", 4), 4, 50))
    found: dict[str, float] = {}
    for _, engine in product(range(turns), ENGINES):
        found[engine] = min(seconds(engine, rounds), found.get(engine, np.inf))
    return found, choose(Federation.prepare(fill({"data": data, **settings}, objects=True)))


def rows(cores: int, turns: int, only: str) -> Iterator[tuple[object, ...]]:
    """A row for every federation."""
    for name in FEDERATIONS:
        if only in name:
            found, chosen = measure_apart(name, cores, turns)
            if found[chosen] > LIMIT * min(found.values()):
                again, _ = measure_apart(name, cores, 3 * turns)
                found = {engine: min(found[engine], again[engine]) for engine in ENGINES}
            behind = found[chosen] / min(found.values())
            times = (f"{found[engine] * 1e3:.2f}" for engine in ENGINES)
            yield (name, *times, chosen, f"{behind:.2f}")


def measure_apart(name: str, cores: int, turns: int) -> tuple[dict[str, float], str]:
    """What `measure` finds in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(cores), str(turns)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found, chosen = json.loads(done.stdout)
    return found, chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="federations whose name has this text")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if options.one:
        name, cores, turns = options.one
        print(json.dumps(measure(name, int(cores), int(turns))))
        return
    with Record(Path(__file__).stem, options.save) as record:
        cores = os.cpu_count() or 1
        for used in sorted({1, cores}, reverse=True):
            found = record.table(
                f"Milliseconds of a round's training, {used} core{'s' * (used > 1)}",
                ("", *ENGINES, "auto is", "x best"),
                rows(used, options.turns, options.only),
            )
            late = [str(row[0]) for row in found if float(str(row[-1])) > LIMIT]
            record.say(f"\nauto is more than 15 % behind the best for: {'; '.join(late) or 'none'}")


if __name__ == "__main__":
    main()

"""What clients with a memory cost, and what those without one pay for them.

    python benchmarks/client_memory.py
    python benchmarks/client_memory.py --before DIR    # DIR: another checkout of fedhaw

Workload A of simulation.py, the letter's MNIST federation, round by round in turns: plain SGD,
SCAFFOLD, FedDyn and FedNova in our engines, SCAFFOLD of pfl, and plain SGD of another checkout.
Processor time is that of all cores together, which other programs disturb least. What ten thousand
memories cost is the workload `memories` of simulation.py.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from record import Record
from simulation_peers.contender import NAMES, Contender, missing

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
CONTENDERS = (
    "sequential", "sequential-scaffold", "sequential-feddyn", "sequential-fednova",
    "processes", "processes-scaffold", "stacked", "stacked-scaffold", "pfl-scaffold",
)  # fmt: skip


def compete(names: Sequence[str], data: str, rounds: int, before: Path | None) -> list[Contender]:
    """The contenders after so many rounds in turns, each of which had one to warm up."""
    made = [Contender(name, "A", data) for name in names if not missing(name)]
    if before is not None:
        made += [Contender("sequential", "A", data, before)]
    with ExitStack() as stack:
        contenders = [stack.enter_context(each) for each in made]
        for _ in range(rounds):
            for contender in contenders:
                contender.round()
    return contenders


def rows(contenders: Sequence[Contender]) -> Iterator[tuple[str, ...]]:
    """Each beside plain SGD in its engine; the others beside the engine `sequential`."""
    plain = {own.name: own for own in contenders if own.checkout is None}
    for own in contenders:
        base = plain.get(own.name.partition("-")[0], plain["sequential"])
        seconds, processor = statistics.median(own.seconds), statistics.median(own.processor)
        yield (
            NAMES[own.name] + (", before" if own.checkout else ""),
            f"{seconds:.3f}", f"{processor:.3f}", f"{min(own.processor):.3f}",
            f"{processor / statistics.median(base.processor):.2f}",
            f"{min(own.processor) / min(base.processor):.2f}",
        )  # fmt: skip


def main() -> None:
    mnist = SHARED / "mnist.npz"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=str(mnist) if mnist.exists() else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=CONTENDERS, help="with sequential among them")
    parser.add_argument("--before", type=Path, help="a checkout to compare plain SGD with")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    with Record("client_memory", options.save) as record:
        contenders = compete(options.only, options.data, options.rounds, options.before)
        record.table(
            f"Workload A: {options.rounds} rounds",
            ("", "s/round", "processor", "lowest", "x plain", "x lowest"),
            rows(contenders),
        )


if __name__ == "__main__":
    main()

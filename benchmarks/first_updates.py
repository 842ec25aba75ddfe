"""How do first updates tell clients with a class of their own from clients with wrong labels?

    python benchmarks/first_updates.py [--unseen FOLDER] [--later FOLDER] [--save]

One round of every federation of `default_rule.py`'s tables *own* and *trust*, and of the data sets
in FOLDERs, whose bad clients have labels at random or flipped. A row is a sort of federations: how
many, and of the clients in question the least and the largest mean cosine of their first update
with all others', and how many of the federations have one whom FedHAW-auto takes to be different
from the start (`rules/trust.py`).
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from federations import BAD_CLIENTS, DEFAULT, OWN_CLASSES, Cell, own, trust, unseen
from record import Record

import fedhaw
from fedhaw.rules.base import Array, Round


@dataclass(frozen=True)
class Watched:
    """The default rule, which shows what it is given."""

    rounds: list[Round]

    def init(self) -> Any:
        """The state before the first round."""
        return fedhaw.FedHAWAuto().init()

    def aggregate(self, state: Any, current: Round) -> tuple[Array, Any]:
        """What the default makes of the round."""
        self.rounds.append(current)
        return fedhaw.FedHAWAuto().aggregate(state, current)


def sorts(folders: list[Path]) -> Iterator[tuple[str, Cell, tuple[int, ...]]]:
    """The federations, what sort each is of, and the clients in question."""
    holders = {name: tuple(range(count)) for name, (_, count) in OWN_CLASSES.items()}
    holders |= {"one client has all 9": (0,), "two have all 9 and all 4": (0, 1)}
    for cell in own():
        name = cell.name.rsplit(", ", 1)[0]
        if name in holders:
            sort = "a class of its own, of ten" if "all 9" in name else "a class each, of two"
            yield sort, cell, holders[name]
    for cell in (cell for cells in (trust(False), *map(unseen, folders)) for cell in cells):
        if found := re.search(r"([13]) (labels|flipped)", cell.name):
            sort = {"labels": "labels at random", "flipped": "flipped labels"}[found[2]]
            yield sort, cell, BAD_CLIENTS[int(found[1])]


def first_cosines(cell: Cell) -> tuple[np.ndarray[Any, Any], tuple[Any, ...]]:
    """(K,) the mean cosines of the first updates with all others, and who is different."""
    seen: list[Round] = []
    settings = {"data": cell.data, "engine": "stacked", **cell.settings}
    fedhaw.simulate(Watched(seen), settings.pop("data"), seed=0, rounds=1, **settings)
    w, W = (
        np.asarray(array, dtype=float) for array in (seen[0].global_model, seen[0].client_models)
    )
    updates = W - w
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    means = ((updates @ updates.T).sum(axis=1) - 1) / (len(updates) - 1)
    _, state = fedhaw.FedHAWAuto().aggregate(fedhaw.FedHAWAuto().init(), seen[0])
    return means, state.spared


def main() -> None:
    """Run every federation for a round, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unseen", type=Path, help="folder of .npz files")
    parser.add_argument("--later", type=Path, help="another")
    parser.add_argument("--save", action="store_true", help="write results/first_updates.txt")
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float, bool]]] = {}
    for sort, cell, clients in sorts([f for f in (args.unseen, args.later) if f]):
        means, different = first_cosines(cell)
        own_means = means[list(clients)]
        met = bool(set(different) & set(clients))
        found.setdefault(sort, []).append((own_means.min(), own_means.max(), met))
    with Record("first_updates", args.save) as record:
        record.table(
            f"First updates, in the eyes of {DEFAULT}",
            ("clients with", "federations", "least cosine", "largest cosine", "different in"),
            [
                (
                    sort,
                    len(rows),
                    f"{min(row[0] for row in rows):+.2f}",
                    f"{max(row[1] for row in rows):+.2f}",
                    sum(row[2] for row in rows),
                )
                for sort, rows in found.items()
            ],
        )


if __name__ == "__main__":
    main()

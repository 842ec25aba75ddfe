"""One door to the splits, for whoever has the name of one in a configuration."""

from typing import Literal, TypeAlias, get_args

from fedhaw.data.dataset import Dataset
from fedhaw.data.errors import DataError
from fedhaw.data.partition_files import read_partition
from fedhaw.data.partitions import (
    Indices,
    by_holder,
    dirichlet,
    iid,
    letter_dirichlet,
    restrict,
    shards,
)
from fedhaw.names import no_such

Split: TypeAlias = Literal["letter", "dirichlet", "iid", "shards", "holders"]

SPLITS: tuple[str, ...] = get_args(Split)
"""The splits by name."""

DEFAULT_CLIENTS = 10


def split(
    dataset: Dataset,
    how: Split | str = "letter",
    clients: int | None = None,
    *,
    alpha: float = 1.0,
    seed: int | None = None,
    min_size: int = 10,
    shards_per_client: int = 2,
) -> list[Indices]:
    """A split of a data set's training samples over clients.

    Args:
        dataset: whose training samples. If it is only the beginning of a larger training set
            (`Dataset.whole_labels`), the letter's split is made over all of that and each client
            keeps what is here, so that clients are still the letter's.
        how: "letter", "dirichlet", "iid", "shards", "holders" (a client for each value of
            `Dataset.holders`), or FILE.npz or FILE.npz:NAME, a split stored by `write_partition`
            or one of several in a file.
        clients: K, default 10, or as many as there are where the data or the file says who the
            clients are; must fit there.
        alpha: concentration of "letter" and "dirichlet".
        seed: default 1 for "letter", the letter's, and 0 for the others.
        min_size: fewest samples of a client, for "dirichlet".
        shards_per_client: for "shards".

    Returns:
        K arrays of sample indices, disjoint, none empty.

    Raises:
        DataError: no such split, or it cannot be made.
    """
    labels, asked = dataset.y_train, clients
    clients = DEFAULT_CLIENTS if asked is None else asked
    match how:
        case "letter":
            whole = labels if dataset.whole_labels is None else dataset.whole_labels
            parts = letter_dirichlet(whole, clients, alpha, 1 if seed is None else seed)
            return restrict(parts, len(labels))
        case "dirichlet":
            return dirichlet(labels, clients, alpha, seed or 0, min_size)
        case "iid":
            return iid(labels, clients, seed or 0)
        case "shards":
            return shards(labels, clients, shards_per_client, seed or 0)
        case "holders":
            if dataset.holders is None:
                raise DataError(f"{dataset.name} does not say who held its samples; split it.")
            return _as_many(by_holder(dataset.holders), asked, f"the holders of {dataset.name}")
    file, dot, name = how.partition(".npz")
    if not dot:
        raise DataError(no_such("split", how, SPLITS, "FILE.npz"))
    whole = labels if dataset.whole_labels is None else dataset.whole_labels
    parts = read_partition(file + dot, name.removeprefix(":") or None, len(whole))
    return _as_many(restrict(parts, len(labels)), asked, how)


def _as_many(parts: list[Indices], clients: int | None, origin: str) -> list[Indices]:
    if clients not in (None, len(parts)):
        raise DataError(
            f"There are {len(parts)} clients in {origin}, not {clients}; ask for {len(parts)}."
        )
    return parts

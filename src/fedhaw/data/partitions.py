"""Who holds which training samples.

Every function returns one array of sample indices per client, disjoint and never empty; all but
`by_holder` and a split of incomplete data cover every sample. The same arguments give the same
split on every machine and NumPy release: the legacy generator's stream is frozen.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.data.errors import DataError

Indices: TypeAlias = NDArray[np.int64]

REDRAWS = 100
"""How often `dirichlet` draws again before it mends the last draw instead."""


def letter_dirichlet(labels: ArrayLike, clients: int, alpha: float, seed: int = 1) -> list[Indices]:
    """The letter's split: a Dirichlet draw over the clients for each class, with a ceiling.

    For each class in order: shuffle its samples; draw the clients' shares from a symmetric
    Dirichlet(alpha); set to zero the share of every client that already holds N/K samples or more;
    renormalise; cut the shuffled list at the floors of the cumulative shares.

    With the letter's arguments (MNIST or CIFAR-10 labels, 10 clients, seed 1) these are the
    letter's clients, sample by sample.

    Args:
        labels: (N,) training labels.
        clients: K.
        alpha: concentration; the smaller, the fewer classes a client sees.
        seed: of the draw.

    Raises:
        DataError: bad arguments, or a client comes out with nothing, which this procedure does
            not prevent.
    """
    known = _check(labels, clients, alpha)
    random = np.random.RandomState(seed)
    ceiling = len(known) / clients
    held = np.zeros(clients, dtype=np.int64)
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(known):
        members = np.flatnonzero(known == label)
        random.shuffle(members)
        shares = _draw_shares(random, alpha, open_to=held < ceiling)
        for client, piece in enumerate(_cut(members, shares)):
            parts[client].append(piece)
            held[client] += len(piece)
    if not held.all():
        raise DataError(
            f"The letter's split of {len(known)} samples over {clients} clients with alpha={alpha} "
            f"and seed={seed} leaves client {int(np.argmin(held))} without any; use `dirichlet`, "
            "which keeps a minimum, or another seed."
        )
    return [np.concatenate(pieces) for pieces in parts]


def dirichlet(
    labels: ArrayLike, clients: int, alpha: float, seed: int = 0, min_size: int = 10
) -> list[Indices]:
    """Plain Dirichlet split: independent shares for each class, no client below a minimum size.

    A draw that leaves a client below the minimum is thrown away and drawn again, at most
    `REDRAWS` times. If none will do, as with a tiny alpha or many clients, the last draw is
    mended: whoever holds most gives a random sample to whoever holds least until all have enough.
    So this always ends.

    Args:
        labels: (N,) training labels.
        clients: K.
        alpha: concentration; the smaller, the fewer classes a client sees.
        seed: of the draw.
        min_size: fewest samples of a client, at least 1.

    Raises:
        DataError: bad arguments, or fewer than clients * min_size samples.
    """
    known = _check(labels, clients, alpha)
    if not 1 <= min_size <= len(known) // clients:
        raise DataError(
            f"{len(known)} samples cannot give each of {clients} clients at least {min_size} "
            f"(and at least 1); ask for a min_size of at most {len(known) // clients}."
        )
    random = np.random.RandomState(seed)
    groups = [np.flatnonzero(known == label) for label in np.unique(known)]
    for _ in range(REDRAWS):
        owners = np.empty(len(known), dtype=np.int64)
        for group in groups:
            members = random.permutation(group)
            shares = _draw_shares(random, alpha, open_to=np.ones(clients, dtype=bool))
            for client, piece in enumerate(_cut(members, shares)):
                owners[piece] = client
        if np.bincount(owners, minlength=clients).min() >= min_size:
            break
    parts = _gather(owners, clients, random)
    _mend(parts, min_size)
    return parts


def iid(labels: ArrayLike, clients: int, seed: int = 0) -> list[Indices]:
    """The samples, dealt out at random in equal numbers (off by one where they do not go round).

    Args:
        labels: (N,) training labels; only their number matters.
        clients: K.
        seed: of the shuffle.

    Raises:
        DataError: fewer samples than clients.
    """
    known = _check(labels, clients)
    order = np.random.RandomState(seed).permutation(len(known)).astype(np.int64)
    return np.array_split(order, clients)


def shards(
    labels: ArrayLike, clients: int, shards_per_client: int = 2, seed: int = 0
) -> list[Indices]:
    """The split of the FedAvg paper: sort by label, cut into equal shards, deal the shards out.

    Args:
        labels: (N,) training labels.
        clients: K.
        shards_per_client: how many shards, and so roughly how many classes, each client gets.
        seed: of the shuffle within classes and of the deal.

    Raises:
        DataError: fewer samples than shards.
    """
    known = _check(labels, clients)
    pieces = clients * shards_per_client
    if not 1 <= shards_per_client <= len(known) // clients:
        raise DataError(
            f"{len(known)} samples cannot be cut into {shards_per_client} shards for each of "
            f"{clients} clients; ask for 1 to {len(known) // clients}."
        )
    random = np.random.RandomState(seed)
    shuffled = random.permutation(len(known))
    by_label = shuffled[np.argsort(known[shuffled], kind="stable")].astype(np.int64)
    cut = np.array_split(by_label, pieces)
    dealt = random.permutation(pieces).reshape(clients, shards_per_client)
    return [np.concatenate([cut[shard] for shard in hand]) for hand in dealt]


def by_holder(holders: ArrayLike) -> list[Indices]:
    """A client for each value of `Dataset.holders`, in ascending order of the value.

    Args:
        holders: (N,) who held each sample where the data was collected.
    """
    owners = np.asarray(holders)
    if owners.ndim != 1 or len(owners) == 0:
        raise DataError(f"holders has shape {owners.shape}; give one number a training sample.")
    return [np.flatnonzero(owners == holder) for holder in np.unique(owners)]


def restrict(parts: Sequence[Indices], samples: int) -> list[Indices]:
    """The part of a split over a whole training set that lies among its first `samples`.

    Raises:
        DataError: a client would be left with nothing.
    """
    kept = [part[part < samples] for part in parts]
    for client, part in enumerate(kept):
        if len(part) == 0:
            raise DataError(
                f"Client {client} holds nothing among the first {samples} samples; "
                "get the whole data set, or split the samples that are here."
            )
    return kept


def label_counts(labels: ArrayLike, parts: Sequence[Indices], classes: int) -> NDArray[np.int64]:
    """(K, classes) how many samples of each class each client holds."""
    known = np.asarray(labels)
    rows = [np.bincount(known[part], minlength=classes) for part in parts]
    return np.stack(rows).astype(np.int64)


def _check(labels: ArrayLike, clients: int, alpha: float = 1.0) -> NDArray[np.int64]:
    known = np.asarray(labels)
    if known.ndim != 1:
        raise DataError(f"labels has shape {known.shape}; give one label a sample.")
    if not 1 <= clients <= len(known):
        raise DataError(
            f"{len(known)} samples cannot be shared out over {clients} clients; choose a number "
            f"of clients from 1 to {len(known)}."
        )
    if not 0 < alpha < np.inf:
        raise DataError(f"alpha is {alpha}; a Dirichlet distribution needs a number above 0.")
    return known


def _draw_shares(
    random: np.random.RandomState, alpha: float, open_to: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(K,) shares summing to 1, zero for clients that take no more."""
    with np.errstate(invalid="ignore"):  # NaN at a tiny alpha, dealt with below
        shares: NDArray[np.float64] = random.dirichlet(np.full(len(open_to), alpha)) * open_to
    total = shares.sum()
    if not total > 0:  # underflow at a tiny alpha (0/0), or all of it fell to full clients
        shares = np.zeros(len(open_to))
        shares[random.choice(np.flatnonzero(open_to))] = 1.0
        return shares
    normalised: NDArray[np.float64] = shares / total
    return normalised


def _cut(members: Indices, shares: NDArray[np.float64]) -> list[Indices]:
    """A class's samples in one piece per client, cut at the floors of the cumulative shares."""
    ends = (np.cumsum(shares) * len(members)).astype(np.int64)[:-1]
    return np.split(members, ends)


def _gather(owners: Indices, clients: int, random: np.random.RandomState) -> list[Indices]:
    """Each client's samples in random order, so that the last of a list is a random one."""
    order = random.permutation(len(owners)).astype(np.int64)
    order = order[np.argsort(owners[order], kind="stable")]
    ends = np.cumsum(np.bincount(owners, minlength=clients))[:-1]
    return np.split(order, ends)


def _mend(parts: list[Indices], min_size: int) -> None:
    """A move of samples from the largest to the smallest client until none is below the minimum.

    The largest always has some to spare, because there are at least clients * min_size in all.
    """
    sizes = np.array([len(part) for part in parts])
    while sizes.min() < min_size:
        poor, rich = int(sizes.argmin()), int(sizes.argmax())
        # All the poor one lacks at once, unless that would make the rich one poor.
        moved = min(min_size - sizes[poor], sizes[rich] - min_size)
        parts[poor] = np.concatenate([parts[poor], parts[rich][len(parts[rich]) - moved :]])
        parts[rich] = parts[rich][: len(parts[rich]) - moved]
        sizes[poor] += moved
        sizes[rich] -= moved

"""The last update of every client that was ever heard, for rules that use it again."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Client, Round, Vector
from fedhaw.rules.blocks import column_blocks, in_order
from fedhaw.rules.mapped_rows import empty_row
from fedhaw.rules.passes import to_numpy

Updates: TypeAlias = Mapping[Client, NDArray[np.generic]]
"""By client its last update, (P,) read-only, in the dtype of the models."""


def renewed(
    known: Updates, current: Round, heard: NDArray[np.bool_], of_new: Vector, of_known: Vector
) -> tuple[Updates, Vector]:
    """The updates, renewed for the clients that were heard, and the sum of what changes by it.

    Args:
        known: the updates before the round.
        current: the round.
        heard: (K,) whose update w_k - w is kept instead of the one before.
        of_new: (K,) the coefficient of each update of the round; 0 where not heard.
        of_known: (K,) the coefficient of each client's update before the round.

    Returns:
        The updates after the round, and (P,) sum_k of_new_k (w_k - w) + of_known_k G_k in float64.
        A running sum of such changes stays exact: nothing of an update is left once it is replaced.
    """
    w, W = to_numpy(current.global_model), to_numpy(current.client_models)
    new = {k: empty_row(w) for k in np.flatnonzero(heard).tolist()}
    old = {
        k: known[name] for k, name in enumerate(current.clients) if name in known and of_known[k]
    }
    change, blocks = np.empty(len(w)), column_blocks(W, written=True)

    def worker() -> Callable[[slice], None]:
        room = np.empty(blocks[0].stop)

        def add(block: slice) -> None:
            sums, part = change[block], room[: block.stop - block.start]
            sums[:] = 0.0
            for k, row in new.items():
                np.subtract(W[k, block], w[block], out=row[block])
                sums += np.multiply(row[block], of_new[k], out=part)
            for k, row in old.items():
                sums += np.multiply(row[block], of_known[k], out=part)

        return add

    in_order(W, worker, blocks)
    for row in new.values():
        row.flags.writeable = False
    return {**known, **{current.clients[k]: row for k, row in new.items()}}, change

"""Products over long rows, during which NumPy's other threads go on.

NumPy lets go of the interpreter lock only for products of many numbers, however long one of few
takes: with ten clients, ten products of a million terms would stop every other thread. So the rows
are cut into pieces, and all pieces are multiplied in one call and then added up. Where one core
does all, and reads the rows from memory, whole rows are up to a fifth faster.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Array

_MANY = 512
"""Numbers that a product must have for NumPy to let go of the lock; it counts to 500."""


def along(rows: Array, vector: Array) -> Array:
    """(K,) `<rows_k, vector>`."""
    if not isinstance(rows, np.ndarray):
        return rows @ vector
    pieces, rest = _cut(rows, len(rows))
    whole = len(vector) - rest.shape[1]
    columns = vector[:whole].reshape(len(pieces), -1, 1)
    return (pieces @ columns).sum(axis=0)[:, 0] + rest @ vector[whole:]


def by_pairs(rows: Array) -> Array:
    """(K, K) `<rows_j, rows_k>`."""
    if not isinstance(rows, np.ndarray):
        return rows @ rows.T
    pieces, rest = _cut(rows, len(rows) ** 2)
    return (pieces @ pieces.swapaxes(1, 2)).sum(axis=0) + rest @ rest.T


def squares(rows: Array) -> Array:
    """(K,) |rows_k|^2."""
    if not isinstance(rows, np.ndarray):
        # torch's vecdot writes the products to memory before it adds them up.
        lengths = rows.norm(dim=1)
        return lengths * lengths
    pieces, rest = _cut(rows, len(rows))
    return np.vecdot(pieces, pieces).sum(axis=0) + np.vecdot(rest, rest)


def _cut(rows: NDArray[Any], numbers: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows (K, n) as equal pieces (m, K, n // m) and a rest (K, n % m), without a copy.

    There are as many pieces as give a product of `numbers` each the many numbers it needs.
    """
    K, n = rows.shape
    count = min(-(-_MANY // numbers), n)
    whole = n - n % count
    return rows[:, :whole].reshape(K, count, -1).swapaxes(0, 1), rows[:, whole:]

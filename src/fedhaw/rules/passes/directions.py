"""FedHAW's direction, in one read of this round's models and one of the last's.

A round moves a model by a small fraction of its length, so a difference of models that nearly
cancel would be mostly rounding: it is formed from the updates w_k - w, or, where that saves a pass
through memory, after a look at what rounding could do.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import column_blocks, in_order, quietly, shared_out, vector_blocks
from fedhaw.rules.passes.arrays import astype, native, to_numpy, to_vector
from fedhaw.rules.passes.average import summing_to_one
from fedhaw.rules.passes.unlocked import along

_SAMPLED = 16
"""Every so many blocks of w one is looked at before, for a guess; all of them are afterwards."""


class Direction(NamedTuple):
    """The direction d = w - sum_j s_j W_j, known by what is asked of it and never stored.

    Attributes:
        dot_w: `<d, w>`.
        dot_u: (J,) `<d, U_k>` for every row of U; a single 0 where there is no U.
        w_length: |w|.
        average_length: |sum_j s_j W_j|.
    """

    dot_w: float
    dot_u: Vector
    w_length: float
    average_length: float


@quietly
def direction(w: Array, W: Array, s: Vector, U: Array | None, tolerance: float) -> Direction:
    """The direction d = w - sum_j s_j W_j, in one read of W and one of U.

    Where rounding allows it, d is the small difference of long vectors. Otherwise it is formed from
    updates: exact but slower, for it writes the updates to cache and reads them again.

    Args:
        w: (P,) the global model the clients started from.
        W: (K, P) what they sent back.
        s: (K,) their weights, summing to 1.
        U: (J, P) the previous round's models, near w and in any floating dtype; None for none.
        tolerance: how far off `<d, w>` and any `<d, U_k>` may be.
    """
    w, W = native(w), native(W)
    if U is not None and isinstance(W, np.ndarray):
        U = to_numpy(U)
    sample = [_square(w[block]) for block in vector_blocks(w)[::_SAMPLED]]
    if _cancels_well(w, sample, tolerance):
        found, squares = _passed(w, W, s, U, exact=False)
        if _cancels_well(w, squares, tolerance):
            return found
    return _passed(w, W, s, U, exact=True)[0]


def _passed(
    w: Array, W: Array, s: Vector, U: Array | None, exact: bool
) -> tuple[Direction, Sequence[float]]:
    """The direction, by updates if `exact`, and the squares of w's blocks."""
    xp, columns, weights = namespace(W), W.T, summing_to_one(s, W)
    blocks = column_blocks(W, written=exact)
    product = along if shared_out(W) else xp.matmul

    def worker() -> Callable[[slice], tuple[float, float, float, Vector]]:
        # One place for all of its blocks: fresh memory costs more than the subtraction.
        room = xp.empty_like(w[blocks[0]])

        def part(block: slice) -> tuple[float, float, float, Vector]:
            w_block = w[block]
            if exact:
                minus_d = weights @ (W[:, block] - w_block)
            else:
                minus_d = xp.matmul(columns[block], weights, out=room[: len(w_block)])
                minus_d -= w_block
            dots = _square(w_block), _square(minus_d), float(minus_d @ w_block)
            if U is None:
                return *dots, np.zeros(1)
            return *dots, to_vector(product(astype(U[:, block], W.dtype), minus_d))

        return part

    squares, d_squares, dots_w, dots_u = zip(*in_order(W, worker, blocks), strict=True)
    w_square, d_square, minus_dot_w = sum(squares), sum(d_squares), sum(dots_w)
    minus_dot_u: Vector = sum(dots_u[1:], start=dots_u[0])
    average_square = w_square + 2 * minus_dot_w + d_square
    found = Direction(-minus_dot_w, -minus_dot_u, _root(w_square), _root(average_square))
    return found, squares


def _square(vector: Array) -> float:
    return float(vector @ vector)


def _cancels_well(w: Array, squares: Sequence[float], tolerance: float) -> bool:
    """Whether d may be a difference of models; `squares` are those of the blocks of w.

    Every element of d is then off by about one unit in the last place of w_p, and independent
    errors add up like a random walk: `<d, w>` is off by about epsilon sqrt(sum_p w_p^4).
    """
    epsilon = float(namespace(w).finfo(w.dtype).eps)
    if epsilon * math.sqrt(sum(square * square for square in squares)) <= tolerance:
        return True  # no less than the sum of fourth powers

    def fourth(block: slice) -> float:
        powers = w[block] * w[block]
        return float(powers @ powers)

    return epsilon * math.sqrt(sum(in_order(w, lambda: fourth, vector_blocks(w)))) <= tolerance


def _root(square: float) -> float:
    return math.sqrt(max(square, 0.0))  # a difference may be a rounding below 0; a NaN becomes 0

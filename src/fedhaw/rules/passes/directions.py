"""FedHAW's direction, in one read of this round's models and one of the last's.

A round moves a model by a small fraction of its length, so a difference of models that nearly
cancel would be mostly rounding: it is formed from the updates w_k - w, or, where that saves a pass
through memory, after a look at what rounding could do.
"""

import math
from typing import NamedTuple, overload

import numpy as np

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import column_blocks, quietly
from fedhaw.rules.passes.arrays import astype, to_vector
from fedhaw.rules.passes.average import summing_to_one


class Direction(NamedTuple):
    """The direction d = w - sum_j s_j W_j, known by what is asked of it and never stored.

    Attributes:
        dot_w: <d, w>.
        dot_u: (J,) <d, U_k> for every row of U; a single 0 where there is no U.
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

    Args:
        w: (P,) the global model the clients started from.
        W: (K, P) what they sent back.
        s: (K,) their weights, summing to 1.
        U: (J, P) the previous round's models, near w and in any floating dtype; None for none.
        tolerance: how far off <d, w> and any <d, U_k> may be.
    """
    weights = summing_to_one(s, W)
    d = _direction(w, W, weights, U, tolerance)
    return d if d is not None else _direction(w, W, weights, U)


@overload
def _direction(w: Array, W: Array, weights: Array, U: Array | None) -> Direction: ...
@overload
def _direction(
    w: Array, W: Array, weights: Array, U: Array | None, tolerance: float
) -> Direction | None: ...
def _direction(
    w: Array, W: Array, weights: Array, U: Array | None, tolerance: float | None = None
) -> Direction | None:
    """The same, d as the small difference of long vectors; None if rounding is beyond tolerance.

    Every element of d is then off by about one unit in the last place of w_p, and independent
    errors add up like a random walk: <d, w> is off by about epsilon sqrt(sum_p w_p^4). Once that is
    more than the tolerance nothing else is of use and the loop ends. Without a tolerance d is
    formed from updates: exact but slower, for it writes the updates to cache and reads them again.
    """
    epsilon = float(namespace(w).finfo(w.dtype).eps)
    fourth = dot_w = w_square = d_square = 0.0
    dot_u = np.zeros(1 if U is None else U.shape[0])
    for block in column_blocks(W):
        w_block, W_block = w[block], W[:, block]
        square = float(w_block @ w_block)
        if tolerance is None:
            minus_d = weights @ (W_block - w_block)
        else:
            minus_d = weights @ W_block
            minus_d -= w_block  # in place: a fresh block of memory costs more than the subtraction
            more = square * square  # no less than the sum of fourth powers
            if not epsilon * math.sqrt(fourth + more) <= tolerance:
                squares = w_block * w_block
                more = float(squares @ squares)
            fourth += more
            if not epsilon * math.sqrt(fourth) <= tolerance:
                return None
        w_square += square
        d_square += float(minus_d @ minus_d)
        dot_w -= float(minus_d @ w_block)
        if U is not None:
            dot_u -= to_vector(astype(U[:, block], W.dtype) @ minus_d)
    average_square = w_square - 2 * dot_w + d_square
    return Direction(dot_w, dot_u, _root(w_square), _root(average_square))


def _root(square: float) -> float:
    return math.sqrt(max(square, 0.0))  # a difference may be a rounding below 0; a NaN becomes 0

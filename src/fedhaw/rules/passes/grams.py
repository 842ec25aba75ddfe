"""The mean of the clients' updates, and how they lie to each other and to the model.

The inner products of K updates with each other cost K multiplications for every number, which takes
longer than to read it. They serve to tell directions apart, and a direction in a space of millions
is known well from a part of its coordinates. So a model that is large for its K is sampled, in
blocks of columns evenly spread from its first parameter to its last: which ones depends on the
shape of the matrix alone.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import in_order, quietly
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes.arrays import astype, like, native, to_vector
from fedhaw.rules.passes.average import combine, combine_updates, summing_to_one
from fedhaw.rules.passes.distances import sums_by_layer
from fedhaw.rules.passes.unlocked import along, by_pairs
from fedhaw.rules.passes.vectors import subtract

WORK = 1 << 25
"""Multiplications for the inner products of every two updates: 335,544 columns of ten models."""

FEWEST = 4096
"""Columns that are looked at in any case."""

BLOCK, BLOCKS = 2048, 64
"""Columns of a block of the sample, long enough to be read at the memory's full speed; fewer where
there would not be so many blocks, for a few of them are no fair sample of all layers."""

TOGETHER = 32_768
"""Columns that are multiplied at once."""

DIGITS = 1e-3
"""What rounding may take of the mean's length before it is formed from the updates themselves."""


class Angles(NamedTuple):
    """How the updates g_k = W_k - w lie to each other and to w, in all columns or in a sample.

    Attributes:
        gram: (K, K) `<g_j, g_k>`.
        along: (K,) `<g_k, w>`.
        square: |w|^2.
    """

    gram: Vector
    along: Vector
    square: float


@quietly
def mean_and_angles(w: Array, W: Array, weights: Vector) -> tuple[Array, Angles]:
    """The mean of the updates g_k = W_k - w, and how they lie to each other and to w.

    Args:
        w: (P,) the global model.
        W: (K, P) the client models.
        weights: (K,) of the mean, summing to 1.

    Returns:
        (P,) sum_k weights_k g_k, and the angles. No matrix of updates is ever stored.
    """
    blocks = sampled_columns(W)
    if not blocks:
        return _of_all_columns(w, W, weights)
    angles = _of_blocks(w, W, blocks)
    epsilon = float(namespace(w).finfo(w.dtype).eps)
    mean_square = max(float(weights @ angles.gram @ weights), 0.0)
    if not epsilon * math.sqrt(angles.square) <= DIGITS * math.sqrt(mean_square):
        return combine_updates(weights, w, W), angles
    mean = combine(to_vector(summing_to_one(weights, W)), W)
    subtract(mean, w)
    return mean, angles


def sampled_columns(W: Array) -> list[slice]:
    """The blocks of columns of the sample; none where all columns are looked at."""
    K, P = (int(size) for size in W.shape)
    columns = max(WORK // (K * K), FEWEST)
    if columns >= P:
        return []
    width = min(BLOCK, columns // BLOCKS)
    starts = np.linspace(0, P - width, columns // width).astype(int).tolist()
    return [slice(start, start + width) for start in starts]


def _of_all_columns(w: Array, W: Array, weights: Vector) -> tuple[Array, Angles]:
    mean = vector_like(w)
    into, w, W = native(mean), native(w), native(W)
    xp, row, K = namespace(W), like(W, weights), int(W.shape[0])

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        updates = xp.subtract(W[:, block], w[block], out=room)
        into[block] = row @ updates
        return _products(updates, w[block])

    (sums,) = sums_by_layer(W, [slice(0, w.shape[0])], measured)
    return mean, _angles(sums, K)


def _of_blocks(w: Array, W: Array, blocks: list[slice]) -> Angles:
    w, W = native(w), native(W)
    xp, K = namespace(W), int(W.shape[0])
    width = blocks[0].stop - blocks[0].start
    count = TOGETHER // width

    def worker() -> Callable[[list[slice]], Array]:
        updates, base = xp.empty_like(W[:, : count * width]), xp.empty_like(w[: count * width])

        def measured(group: list[slice]) -> Array:
            for i, block in enumerate(group):
                place = slice(i * width, i * width + width)
                base[place] = w[block]
                xp.subtract(W[:, block], w[block], out=updates[:, place])
            filled = slice(0, len(group) * width)
            return xp.concat(_products(updates[:, filled], base[filled]))

        return measured

    groups = [blocks[i : i + count] for i in range(0, len(blocks), count)]
    # Added up in the order of the groups, so that the number of threads does not matter; and as if
    # of all columns, for how many are looked at depends on K.
    sums = np.sum([to_vector(part) for part in in_order(W, worker, groups)], axis=0)
    return _angles(sums * (int(W.shape[1]) / (len(blocks) * width)), K)


def _products(updates: Array, w: Array) -> tuple[Array, ...]:
    xp = namespace(updates)
    if updates.itemsize <= 2:  # the square of a 16-bit number soon leaves its type
        updates, w = astype(updates, xp.float32), astype(w, xp.float32)
    return xp.reshape(by_pairs(updates), (-1,)), along(updates, w), (w @ w)[None]


def _angles(sums: Vector, K: int) -> Angles:
    return Angles(sums[: K * K].reshape(K, K), sums[K * K : -1], float(sums[-1]))

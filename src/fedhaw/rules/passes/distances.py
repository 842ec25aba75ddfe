"""How the clients' updates lie to each other, in one read of their models."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import in_order, layer_blocks, on_cpu
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes.arrays import astype, like, native, to_numpy, to_vector
from fedhaw.rules.passes.average import summing_to_one
from fedhaw.rules.passes.unlocked import along, by_pairs, squares


def update_products(
    w: Array, W: Array, weights: Vector, scales: Vector | None = None
) -> tuple[Vector, Vector]:
    """How the updates g_k = W_k - w lie to their weighted mean g = sum_k weights_k g_k.

    Args:
        w: (P,) the global model.
        W: (K, P) the client models.
        weights: (K,) of the mean.
        scales: (K,) multiples of the mean; None for 0.

    Returns:
        (K,) `<g_k, g>` and (K,) |g_k - scales_k g|^2. The updates live only in cache.
    """
    w, W = native(w), native(W)
    xp, row = namespace(W), like(W, weights)
    multiples = None if scales is None else like(W, scales)[:, None]

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        updates = xp.subtract(W[:, block], w[block], out=room)
        mean = row @ updates
        rest = updates if multiples is None else updates - multiples * mean
        return along(updates, mean), squares(rest)

    (sums,) = sums_by_layer(W, [slice(0, w.shape[0])], measured)
    to_mean, lengths = np.split(sums, 2)
    return to_mean, lengths


def update_squares(w: Array, W: Array) -> Vector:
    """(K,) |W_k - w|^2."""
    w, W = native(w), native(W)
    xp = namespace(W)

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        return (squares(xp.subtract(W[:, block], w[block], out=room)),)

    sums: Vector = sums_by_layer(W, [slice(0, w.shape[0])], measured)[0]
    return sums


def turns(w: Array, W: Array, layers: Sequence[slice]) -> Vector:
    """(L, K) 1 - cos(w, W_k), layer by layer; NaN where a number is too long for its square."""
    w, W = native(w), native(W)
    xp, K = namespace(W), W.shape[0]
    wide = xp.float32 if W.itemsize <= 2 else W.dtype  # 16 bits are too few for a square

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        updates, base = xp.subtract(W[:, block], w[block], out=room), astype(w[block], wide)
        return squares(updates), along(updates, base), (base @ base)[None]

    sums = sums_by_layer(W, layers, measured, wide)
    return angular_distances(sums[:, :K], sums[:, K:-1], sums[:, -1:])


def spread(
    w: Array, W: Array, weights: Vector, layers: Sequence[slice]
) -> tuple[Vector, Vector, Vector, Array]:
    """How far the client models are apart, layer by layer, in one read of W.

    Args:
        w: (P,) the global model.
        W: (K, P) the client models.
        weights: (K,) of the average, summing to 1.
        layers: L slices of the P parameters.

    Returns:
        (L,) |w|^2; (L,) |average - w|^2; (L, K) |W_k - mean_j W_j|^2, the same for models as for
        updates; and (P,) the weighted average. It is finite if the first two are. A difference of
        models is as exact as the models are, which is enough where lengths are compared with |w|.
    """
    average = vector_like(w)
    into, w, W = native(average), native(w), native(W)
    xp, K = namespace(W), W.shape[0]
    both = xp.stack([summing_to_one(of, W) for of in (weights, np.full(K, 1 / K))])

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        w_block, W_block = w[block], W[:, block]
        # NumPy's BLAS would copy the block for a product of matrices.
        update, centre = (row @ W_block for row in both) if xp is np else both @ W_block
        into[block] = update
        update -= w_block
        lengths = (w_block @ w_block)[None], (update @ update)[None]
        return *lengths, squares(xp.subtract(W_block, centre, out=room))

    sums = sums_by_layer(W, layers, measured)
    return sums[:, 0], sums[:, 1], sums[:, 2:], average


def sums_by_layer(
    W: Array,
    layers: Sequence[slice],
    function: Callable[[slice, Array], tuple[Array, ...]],
    dtype: Any = None,
) -> Vector:
    """(L, n) the float64 sums of `function(block, room)` over each layer's blocks of columns.

    Of the vectors that it returns the n numbers are strung together. In the room, as large as the
    block of W and of its dtype unless another is given, it may write what it likes; fresh memory
    would cost more than the work on it.
    """
    xp, blocks = namespace(W), layer_blocks(layers, W)
    widest = max(block.stop - block.start for _, block in blocks)

    def worker() -> Callable[[tuple[int, slice]], tuple[Array, ...]]:
        room = xp.empty_like(W[:, :widest], dtype=dtype)
        return lambda task: function(task[1], room[:, : task[1].stop - task[1].start])

    numbers = chain.from_iterable(in_order(W, worker, blocks))
    by_block = to_vector(xp.concat(list(numbers))).reshape(len(blocks), -1)
    # Added up in the order of the blocks, so that the number of threads does not matter.
    first_blocks = np.searchsorted([index for index, _ in blocks], np.arange(len(layers)))
    sums: Vector = np.add.reduceat(by_block, first_blocks, axis=0)
    return sums


def gram(w: Array, W: Array) -> tuple[Vector, Vector, float]:
    """The inner products of the updates g_k = W_k - w with each other and with w.

    Returns:
        (K, K) `<g_j, g_k>`, (K,) `<g_k, w>` and |w|^2, in one read of W. Lengths, distances and
        angles of updates, and of their sums, are arithmetic on these. Not finite where an update is
        not, or where it is too long for the square.
    """
    if on_cpu(W):  # NumPy has 16-bit numbers in wide ones too
        w, W = to_numpy(w), to_numpy(W)
    xp, K = namespace(W), W.shape[0]
    # Distances are differences of these numbers. Not every device has float64, but all have
    # float32, which the square of a 16-bit number needs.
    wide = xp.float64 if on_cpu(W) or W.itemsize > 4 else xp.float32

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        updates, base = xp.subtract(W[:, block], w[block], out=room), astype(w[block], wide)
        return xp.reshape(by_pairs(updates), (-1,)), along(updates, base), (base @ base)[None]

    (sums,) = sums_by_layer(W, [slice(0, w.shape[0])], measured, wide)
    return sums[: K * K].reshape(K, K), sums[K * K : -1], float(sums[-1])


def angular_distances(squares: Vector, along: Vector, square: float | Vector) -> Vector:
    """(..., K) 1 - cos(w, w + g_k), from |g_k|^2, `<g_k, w>` and |w|^2; 0 where there is no angle.

    1 - cos = sin^2 / (1 + cos), and |w|^2 |w + g|^2 sin^2 = |w|^2 |g|^2 - `<w, g>`^2, which keeps
    its digits however small the update is.
    """
    product = square + along  # <w, w + g_k>
    lengths = np.sqrt(square * np.maximum(square + 2 * along + squares, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.maximum(square * squares - along**2, 0.0) / (lengths * (lengths + product))
        distances: Vector = np.where(product > 0, small, 1 - product / lengths)
    return np.where(lengths > 0, distances, 0.0)

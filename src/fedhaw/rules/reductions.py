"""The few passes over a K x P matrix of client models that every rule is built of.

Reading the matrix is the cost of a rule; everything else is arithmetic on K numbers. So each
function here reads it once, a block of columns at a time, does all it needs while the block is in
cache, and returns float64 coefficients. Nothing ever copies the matrix.

A round moves a model by a small fraction of its length, so sums of models that nearly cancel would
be mostly rounding: they are formed from the updates w_k - w, or, where that saves a pass through
memory, after a look at what rounding could do.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, overload

import array_api_compat
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import (
    column_blocks,
    each,
    in_order,
    layer_blocks,
    quietly,
    vector_blocks,
)
from fedhaw.rules.memory import vector_like


def softmax(logits: Vector) -> Vector:
    """(K,) positive numbers summing to 1, for logits of any size; -inf gives exactly 0."""
    exponentials = np.exp(logits - logits.max())
    weights: Vector = exponentials / exponentials.sum()
    return weights


def to_numpy(array: Array) -> NDArray[Any]:
    """An array of any backend in NumPy, bit for bit."""
    if isinstance(array, np.ndarray):
        return array
    if not array_api_compat.is_torch_array(array):
        return np.asarray(array)
    array = array.detach().cpu()
    if str(array.dtype) == "torch.bfloat16":
        # NumPy sees torch's bfloat16 only through its bits.
        bits: NDArray[Any] = array.view(namespace(array).int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    return np.asarray(array.numpy())


def to_vector(array: Array) -> Vector:
    """A small array of any backend as a float64 NumPy array."""
    return np.asarray(to_numpy(array), dtype=np.float64)


def like(reference: Array, values: Array, *, keep_dtype: bool = False) -> Array:
    """`values` on the backend and device of `reference`, in its dtype unless `keep_dtype`."""
    if isinstance(reference, np.ndarray):
        values = to_numpy(values)
    else:
        xp, device = namespace(reference), array_api_compat.device(reference)
        if isinstance(values, np.ndarray) and values.dtype == ml_dtypes.bfloat16:
            values = xp.asarray(values.view(np.int16), device=device).view(xp.bfloat16)
        else:
            values = xp.asarray(values, device=device)
    return values if keep_dtype else astype(values, reference.dtype)


def astype(array: Array, dtype: Any) -> Array:
    """`array` in `dtype`; itself if it has it already."""
    if array.dtype == dtype:
        return array
    if isinstance(array, np.ndarray):
        return array.astype(dtype)  # the method knows ml_dtypes' types, the function does not
    return namespace(array).astype(array, dtype)


@quietly
def combine(coefficients: Vector, W: Array) -> Array:
    """(P,) sum_k coefficients_k W_k: one matrix-vector product, one read of W."""
    row = like(W, coefficients)
    # From the left, torch makes it a product of matrices, which is slower at this length but the
    # only form that every processor has for 16-bit numbers.
    if W.itemsize <= 2:
        return row @ W
    return namespace(W).matmul(W.T, row, out=vector_like(W[0]))


@quietly
def inner(W: Array, vector: Array) -> Vector:
    """(K,) <W_k, vector> for every client."""
    return to_vector(W @ vector)


@quietly
def dot(a: Array, b: Array) -> float:
    """<a, b>, summed in float64 over blocks."""
    return float(sum(float(a[block] @ b[block]) for block in vector_blocks(a)))


@quietly
def products(*vectors: Array) -> Vector:
    """(n, n) inner products of n vectors with each other; vectors named twice are read once."""
    place: dict[int, int] = {}
    different = [place.setdefault(id(vector), len(place)) for vector in vectors]
    read = [vectors[different.index(i)] for i in range(len(place))]
    sums = np.zeros((len(read), len(read)))
    xp = namespace(*read)
    for block in vector_blocks(read[0]):
        # The square of a 16-bit number soon leaves its type.
        parts = [
            part if part.itemsize > 2 else astype(part, xp.float32)
            for part in (vector[block] for vector in read)
        ]
        for i, j in zip(*np.tril_indices(len(parts)), strict=True):
            sums[i, j] += float(parts[i] @ parts[j])
    sums += np.tril(sums, -1).T
    return sums[np.ix_(different, different)]


def subtract(x: Array, y: Array) -> None:
    """Take y away from x, in place, by all cores."""

    def part(block: slice) -> None:
        x[block] -= y[block]

    each(x, part, vector_blocks(x))


def blend(a: float, x: Array, b: float, y: Array) -> Array:
    """(P,) a x + b y, by all cores; what is in between never leaves the cache."""
    sums = vector_like(x)

    def part(block: slice) -> None:
        sums[block] = a * x[block] + b * y[block]

    each(x, part, vector_blocks(x))
    return sums


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


def summing_to_one(s: Vector, W: Array) -> Array:
    """`s` in the dtype of W, and still summing to 1.

    Rounding each weight by itself leaves a sum of 1 + 1e-8 or so, and a difference of models would
    gain that fraction of the whole model. All weights, and 1, are multiples of the last place of
    the smallest one that is not 0, so that one can take up the rest exactly.
    """
    weights = like(W, s).tolist()
    rest = 1.0 - math.fsum(weights)
    if rest != 0:
        weights[weights.index(min(filter(None, weights)))] += rest
    return like(W, np.array(weights))


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
        (K,) <g_k, g> and (K,) |g_k - scales_k g|^2. The updates live only in cache.
    """
    xp, row = namespace(W), like(W, weights)
    multiples = None if scales is None else like(W, scales)[:, None]

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        updates = xp.subtract(W[:, block], w[block], out=room)
        mean = row @ updates
        along = updates @ mean
        rest = updates if multiples is None else updates - multiples * mean
        return along, _squares(rest)

    (sums,) = _sums_by_layer(W, [slice(0, w.shape[0])], measured)
    along, squares = np.split(sums, 2)
    return along, squares


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
    xp, K = namespace(W), W.shape[0]
    both = xp.stack([summing_to_one(of, W) for of in (weights, np.full(K, 1 / K))])
    average = vector_like(w)

    def measured(block: slice, room: Array) -> tuple[Array, ...]:
        w_block, W_block = w[block], W[:, block]
        update, centre = both @ W_block
        average[block] = update
        update -= w_block
        lengths = (w_block @ w_block)[None], (update @ update)[None]
        return *lengths, _squared_distances(xp, W_block, centre, room)

    sums = _sums_by_layer(W, layers, measured)
    return sums[:, 0], sums[:, 1], sums[:, 2:], average


def _squared_distances(xp: Any, rows: Array, centre: Array, room: Array) -> Array:
    """(K,) |rows_k - centre|^2."""
    if xp is np:
        return _squares(np.subtract(rows, centre, out=room))
    # Row by row: torch spreads a vector over the cores in the same way for a difference and for a
    # product, so that each finds what it wrote in its own cache.
    apart = room[0]
    return xp.stack([xp.sub(row, centre, out=apart) @ apart for row in rows])


def _squares(rows: Array) -> Array:
    """(K,) |rows_k|^2."""
    if isinstance(rows, np.ndarray):
        return np.linalg.vecdot(rows, rows)
    # torch's vecdot writes the products to memory before it adds them up.
    lengths = rows.norm(dim=1)
    return lengths * lengths


def _sums_by_layer(
    W: Array, layers: Sequence[slice], function: Callable[[slice, Array], tuple[Array, ...]]
) -> Vector:
    """(L, n) the float64 sums of `function(block, room)` over each layer's blocks of columns.

    Of the vectors that it returns the n numbers are strung together. In the room, as large as the
    block of W, it may write what it likes; fresh memory would cost more than the work on it.
    """
    xp, blocks = namespace(W), layer_blocks(layers, W)
    widest = max(block.stop - block.start for _, block in blocks)

    def worker() -> Callable[[tuple[int, slice]], tuple[Array, ...]]:
        room = xp.empty_like(W[:, :widest])
        return lambda task: function(task[1], room[:, : task[1].stop - task[1].start])

    numbers = chain.from_iterable(in_order(W, worker, blocks))
    by_block = to_vector(xp.concat(list(numbers))).reshape(len(blocks), -1)
    # Added up in the order of the blocks, so that the number of threads does not matter.
    first_blocks = np.searchsorted([index for index, _ in blocks], np.arange(len(layers)))
    sums: Vector = np.add.reduceat(by_block, first_blocks, axis=0)
    return sums


def scale_layers(model: Array, layers: Sequence[slice], factors: Vector) -> None:
    """Multiply each layer of a model by its factor, in place."""

    def scale(task: tuple[int, slice]) -> None:
        index, block = task
        model[block] *= float(factors[index])

    each(model, scale, layer_blocks(layers, model[None]))


def non_finite_rows(W: Array) -> list[int]:
    """Which rows hold a NaN or an infinity."""
    xp = namespace(W)
    return [k for k in range(W.shape[0]) if not bool(xp.all(xp.isfinite(W[k])))]


@quietly
def is_finite(vector: Array) -> bool:
    """Whether no element is NaN or infinite; a sum of squares tells for all but huge numbers."""
    if math.isfinite(float(vector @ vector)):
        return True
    xp = namespace(vector)
    return bool(xp.all(xp.isfinite(vector)))

"""The few passes over a K x P matrix of client models that every rule is built of.

Reading the matrix is the cost of a rule; everything else is arithmetic on K numbers. So each
function here reads it once, a block of columns at a time, does all it needs while the block is in
cache, and returns float64 coefficients. Nothing ever copies the matrix.

A round moves a model by a small fraction of its length, so sums of models that nearly cancel would
be mostly rounding: they are formed from the updates w_k - w, or, where that saves a pass through
memory, after a look at what rounding could do.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import TypeVar

import array_api_compat
import ml_dtypes
import numpy as np

from fedhaw.rules.base import Array, Vector, namespace

_T = TypeVar("_T")
_R = TypeVar("_R")

# How many elements of a matrix to handle at a time: measured, see benchmarks/server_step.py.
_NUMPY_BLOCK = 1_310_720  # BLAS spreads a block over the cores,
_TORCH_BLOCK = 655_360  # and so does torch
_THREAD_BLOCK = 327_680  # for one core, whose L2 cache also holds the block's updates
_DEVICE_BLOCK = 1 << 26

# What is not finite is looked for afterwards, by `guards.checked`; no warning on the way.
_quietly = np.errstate(over="ignore", invalid="ignore")


def softmax(logits: Vector) -> Vector:
    """(K,) positive numbers summing to 1, for logits of any size; -inf gives exactly 0."""
    exponentials = np.exp(logits - logits.max())
    weights: Vector = exponentials / exponentials.sum()
    return weights


def to_vector(array: Array) -> Vector:
    """A small array of any backend as a float64 NumPy array."""
    if array_api_compat.is_torch_array(array):
        array = array.detach().cpu().numpy()
    return np.asarray(array, dtype=np.float64)


def like(reference: Array, values: Array, *, keep_dtype: bool = False) -> Array:
    """`values` on the backend and device of `reference`, in its dtype unless `keep_dtype`."""
    xp = namespace(reference)
    device = array_api_compat.device(reference)
    if isinstance(values, np.ndarray) and values.dtype == ml_dtypes.bfloat16 and xp is not np:
        if array_api_compat.is_torch_array(reference):
            # torch does not know NumPy's bfloat16 extension: hand over the bits.
            bits = xp.asarray(values.view(np.int16), device=device)
            values = bits.view(xp.bfloat16)
    else:
        values = xp.asarray(values, device=device)
    return values if keep_dtype else astype(values, reference.dtype)


def astype(array: Array, dtype: object) -> Array:
    """`array` in `dtype`; itself if it has it already."""
    return array if array.dtype == dtype else namespace(array).astype(array, dtype)


@_quietly
def combine(coefficients: Vector, W: Array) -> Array:
    """(P,) sum_k coefficients_k W_k: one matrix-vector product, one read of W."""
    row = like(W, coefficients)
    if not array_api_compat.is_torch_array(W):
        return row @ W
    # torch spreads a product over the cores by its rows, of which there are few, unless narrow.
    sums = namespace(W).empty_like(W[0])
    for block in _blocks(W.shape[1], _columns(W, _block_elements(W))):
        sums[block] = row @ W[:, block]
    return sums


@_quietly
def inner(W: Array, vector: Array) -> Vector:
    """(K,) <W_k, vector> for every client."""
    return to_vector(W @ vector)


@_quietly
def dot(a: Array, b: Array) -> float:
    """<a, b>, summed in float64 over blocks."""
    blocks = _blocks(a.shape[0], _block_elements(a))
    return float(sum(float(a[block] @ b[block]) for block in blocks))


@_quietly
def direction_products(
    w: Array, W: Array, s: Vector, U: Array | None, tolerances: tuple[float, float]
) -> tuple[float, Vector]:
    """Inner products with d = w - sum_j s_j W_j, which is never stored.

    Args:
        w: (P,) the global model the clients started from.
        W: (K, P) what they sent back.
        s: (K,) their weights, summing to 1.
        U: (J, P) the previous round's models, near w and in any floating dtype; None for none.
        tolerances: how far off <d, w> and any <d, U_k> may be.

    Returns:
        <d, w>, and (J,) <d, U_k>: one read of W and one of U.
    """
    weights = _summing_to_one(s, W)
    blocks = _blocks(w.shape[0], _columns(W, _block_elements(W)))
    careful = not _may_cancel(w, blocks, min(tolerances))

    along_w, along_U = 0.0, np.zeros(0 if U is None else U.shape[0])
    for block in blocks:
        w_block, W_block = w[block], W[:, block]
        if careful:
            minus_d = weights @ (W_block - w_block)
        else:
            minus_d = weights @ W_block
            minus_d -= w_block  # in place: a fresh block of memory costs more than the subtraction
        along_w -= float(minus_d @ w_block)
        if U is not None:
            along_U -= to_vector(astype(U[:, block], W.dtype) @ minus_d)
    return along_w, along_U


def _summing_to_one(s: Vector, W: Array) -> Array:
    """`s` in the dtype of W, and still summing to 1.

    Rounding each weight by itself leaves a sum of 1 + 1e-8 or so, and d would gain that fraction of
    the whole model. All weights, and 1, are multiples of the smallest weight's last place, so that
    one can take up the rest exactly.
    """
    weights = to_vector(like(W, s))
    weights[weights.argmin()] += 1.0 - weights.sum()
    return like(W, weights)


def _may_cancel(w: Array, blocks: list[slice], tolerance: float) -> bool:
    """Whether d may be formed as the small difference of long vectors that it is.

    Every element is then off by about one unit in the last place of w_p, and independent errors add
    up like a random walk: <d, w> is off by about epsilon sqrt(sum_p w_p^4), which is no more than
    epsilon |w|^2. Forming d from updates is exact but slower, for it writes the updates to cache
    and reads them again.
    """
    epsilon = float(namespace(w).finfo(w.dtype).eps)
    if epsilon * sum(float(w[block] @ w[block]) for block in blocks) <= tolerance:
        return True
    fourth = 0.0
    for block in blocks:
        squares = w[block] * w[block]
        fourth += float(squares @ squares)
    return epsilon * math.sqrt(fourth) <= tolerance


def update_products(
    w: Array,
    W: Array,
    weightings: Sequence[Vector],
    layers: Sequence[slice],
    average: Array | None = None,
) -> tuple[Vector, Vector]:
    """Inner products of the updates g_k = W_k - w with weighted means of them, layer by layer.

    Every norm, angle and distance that FedAdp and FedLWS ask for follows from these. The updates
    live only while their block is in cache.

    Args:
        w: (P,) the global model.
        W: (K, P) the client models.
        weightings: M weightings of the clients, (K,) each; the m-th mean is
            mean_m = sum_k weightings[m][k] g_k.
        layers: L slices of the P parameters.
        average: (P,) filled with w + mean_0, the models' weighted average, when given; while the
            updates are at hand that is cheaper than another read of W.

    Returns:
        (L, M, K) <g_k, mean_m> and (L, K) |g_k|^2.
    """
    K, M, L = W.shape[0], len(weightings), len(layers)
    xp = namespace(W)
    rows = like(W, np.stack(weightings))
    columns = _columns(W, _block_elements(W, own_threads=True))
    blocks = [
        (index, slice(layer.start + block.start, layer.start + block.stop))
        for index, layer in enumerate(layers)
        for block in _blocks(layer.stop - layer.start, columns)
    ]

    @_quietly
    def products(task: tuple[int, slice]) -> tuple[Array, Array]:
        block = task[1]
        updates = W[:, block] - w[block]
        means = rows @ updates
        if average is not None:
            average[block] = w[block] + means[0]
        return means @ updates.T, xp.linalg.vecdot(updates, updates)

    with_means, squares = np.zeros((L, M, K)), np.zeros((L, K))
    # Partial sums are added in block order, so the result does not depend on the thread count.
    for (index, _), (means, square) in zip(blocks, _map(W, products, blocks), strict=True):
        with_means[index] += to_vector(means)
        squares[index] += to_vector(square)
    return with_means, squares


def non_finite_rows(W: Array) -> list[int]:
    """Which rows hold a NaN or an infinity."""
    xp = namespace(W)
    return [k for k in range(W.shape[0]) if not bool(xp.all(xp.isfinite(W[k])))]


@_quietly
def is_finite(vector: Array) -> bool:
    """Whether no element is NaN or infinite; a sum of squares tells for all but huge numbers."""
    if np.isfinite(float(vector @ vector)):
        return True
    xp = namespace(vector)
    return bool(xp.all(xp.isfinite(vector)))


def _block_elements(array: Array, *, own_threads: bool = False) -> int:
    if str(array_api_compat.device(array)) != "cpu":
        return _DEVICE_BLOCK
    if array_api_compat.is_torch_array(array):
        return _TORCH_BLOCK
    return _THREAD_BLOCK if own_threads else _NUMPY_BLOCK


def _columns(W: Array, elements: int) -> int:
    # Never so narrow that a row's piece is a few cache lines.
    return max(elements // int(W.shape[0]), 256)


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _map(W: Array, function: Callable[[_T], _R], tasks: Sequence[_T]) -> Iterable[_R]:
    """Apply `function` to every task, in order; on NumPy with a thread per core.

    NumPy runs element-wise work on one core but lets go of the interpreter lock meanwhile. torch
    spreads each operation over the cores by itself.
    """
    if not array_api_compat.is_numpy_array(W) or len(tasks) == 1:
        return map(function, tasks)
    cores = _cores()
    share = -(-len(tasks) // cores)
    shares = [tasks[start : start + share] for start in range(0, len(tasks), share)]
    return chain.from_iterable(_pool(cores).map(lambda part: list(map(function, part)), shares))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fedhaw-rules")


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads: it makes a pool of its own.
    os.register_at_fork(after_in_child=_pool.cache_clear)

"""The few passes over a K x P matrix of client models that every rule is built of.

Reading the matrix is the cost of a rule; everything else is arithmetic on K numbers. So each
function here reads it once, a block of columns at a time, does all it needs while the block is in
cache, and returns float64 coefficients. Nothing ever copies the matrix.

Sums that cancel are formed from the updates w_k - w, not from the models: a round moves a model by
a small fraction of its length, and a difference of long float32 vectors would be mostly rounding.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import TypeVar

import array_api_compat
import ml_dtypes
import numpy as np

from fedhaw.rules.base import Array, Vector

_T = TypeVar("_T")
_R = TypeVar("_R")

# Elements of the matrix handled at a time, by who runs them in parallel. BLAS and torch spread one
# block over the cores, so it should be large; our own threads take a block each, which then has to
# fit a core's L2 cache together with its updates.
_SHARED_BLOCK = 1_310_720
_THREAD_BLOCK = 163_840
_DEVICE_BLOCK = 1 << 26

# d is recomputed from updates where it is shorter than this fraction of the model: at most four of
# float32's 24 bits may cancel.
_CANCELLING = 2.0**-4


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
    xp = array_api_compat.array_namespace(reference)
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
    return array_api_compat.array_namespace(array).astype(array, dtype, copy=False)


@_quietly
def combine(coefficients: Vector, W: Array) -> Array:
    """(P,) sum_k coefficients_k W_k: one matrix-vector product, one read of W."""
    return like(W, coefficients) @ W


@_quietly
def inner(W: Array, vector: Array) -> Vector:
    """(K,) <W_k, vector> for every client."""
    return to_vector(W @ vector)


@_quietly
def dot(a: Array, b: Array) -> float:
    """<a, b>, summed in float64 over blocks."""
    blocks = _blocks(a.shape[0], _block_elements(a, threads=False))
    return float(sum(float(a[block] @ b[block]) for block in blocks))


@_quietly
def direction_products(w: Array, W: Array, s: Vector, U: Array | None) -> tuple[float, Vector]:
    """Inner products with d = w - sum_j s_j W_j, which is never stored.

    Args:
        w: (P,) the global model the clients started from.
        W: (K, P) what they sent back.
        s: (K,) their weights, summing to 1.
        U: (J, P) the previous round's models, in any floating dtype; None for no models.

    Returns:
        <d, w>, and (J,) <d, U_k>: one read of W and one of U.
    """
    weights = like(W, s)
    along_w = 0.0
    along_U = np.zeros(0 if U is None else U.shape[0])
    columns = _columns(W, _block_elements(W, threads=False))
    for block in _blocks(w.shape[0], columns):
        w_block, W_block = w[block], W[:, block]
        d = w_block - weights @ W_block
        if float(d @ d) < _CANCELLING**2 * float(w_block @ w_block):
            d = weights @ (w_block - W_block)
        along_w += float(d @ w_block)
        if U is not None:
            along_U += to_vector(astype(U[:, block], W.dtype) @ d)
    return along_w, along_U


def update_products(
    w: Array, W: Array, weightings: Sequence[Vector], layers: Sequence[slice]
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

    Returns:
        (L, M, K) <g_k, mean_m> and (L, K) |g_k|^2.
    """
    K, M, L = W.shape[0], len(weightings), len(layers)
    xp = array_api_compat.array_namespace(W)
    rows = [like(W, weighting) for weighting in weightings]
    columns = _columns(W, _block_elements(W, threads=True))
    blocks = [
        (index, slice(layer.start + block.start, layer.start + block.stop))
        for index, layer in enumerate(layers)
        for block in _blocks(layer.stop - layer.start, columns)
    ]

    @_quietly
    def products(task: tuple[int, slice]) -> tuple[list[Vector], Vector]:
        updates = W[:, task[1]] - w[task[1]]
        means = [updates @ (row @ updates) for row in rows]
        return means, xp.linalg.vecdot(updates, updates)

    with_means, squares = np.zeros((L, M, K)), np.zeros((L, K))
    # Partial sums are added in block order, so the result does not depend on the thread count.
    for (index, _), (means, square) in zip(blocks, _map(W, products, blocks), strict=True):
        for m, mean in enumerate(means):
            with_means[index, m] += to_vector(mean)
        squares[index] += to_vector(square)
    return with_means, squares


def non_finite_rows(W: Array) -> list[int]:
    """Which rows hold a NaN or an infinity."""
    xp = array_api_compat.array_namespace(W)
    return [k for k in range(W.shape[0]) if not bool(xp.all(xp.isfinite(W[k])))]


@_quietly
def is_finite(vector: Array) -> bool:
    """Whether no element is NaN or infinite; a sum of squares tells for all but huge numbers."""
    if np.isfinite(float(vector @ vector)):
        return True
    xp = array_api_compat.array_namespace(vector)
    return bool(xp.all(xp.isfinite(vector)))


def _block_elements(array: Array, *, threads: bool) -> int:
    if str(array_api_compat.device(array)) != "cpu":
        return _DEVICE_BLOCK
    if threads and array_api_compat.is_numpy_array(array):
        return _THREAD_BLOCK
    return _SHARED_BLOCK


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
    cores = len(os.sched_getaffinity(0))
    share = -(-len(tasks) // cores)
    shares = [tasks[start : start + share] for start in range(0, len(tasks), share)]
    return chain.from_iterable(_pool(cores).map(lambda part: list(map(function, part)), shares))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fedhaw-rules")

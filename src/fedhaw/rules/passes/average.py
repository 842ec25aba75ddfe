"""Weighted sums of the client models, and the weights."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import column_blocks, each, in_order, layer_blocks, shared_out
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes.arrays import like, native, to_vector
from fedhaw.rules.passes.unlocked import along


def softmax(logits: Vector) -> Vector:
    """(K,) positive numbers summing to 1, for logits of any size; -inf gives exactly 0."""
    exponentials = np.exp(logits - logits.max())
    weights: Vector = exponentials / exponentials.sum()
    return weights


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


def combine(coefficients: Vector, W: Array) -> Array:
    """(P,) sum_k coefficients_k W_k: one matrix-vector product, one read of W."""
    if W.itemsize <= 2:
        # From the left, torch makes it a product of matrices: the only form that every processor
        # has for 16-bit numbers.
        return like(W, coefficients) @ W
    total = vector_like(W[0])
    into, W = native(total), native(W)
    xp, columns, row = namespace(W), W.T, like(W, coefficients)

    def part(block: slice) -> None:
        xp.matmul(columns[block], row, out=into[block])

    # Backwards: a rule that has just read W from the front left its end in cache.
    each(W, part, column_blocks(W)[::-1])
    return total


def combine_layers(coefficients: Vector, W: Array, layers: Sequence[slice]) -> Array:
    """(P,) sum_k coefficients_lk W_k in each layer l, for (L, K) coefficients."""
    total = vector_like(W[0])
    into, W = native(total), native(W)
    rows = [like(W, row) for row in coefficients]

    def part(task: tuple[int, slice]) -> None:
        layer, block = task
        into[block] = rows[layer] @ W[:, block]

    each(W, part, layer_blocks(layers, W))
    return total


def inner(W: Array, vector: Array) -> Vector:
    """(K,) `<W_k, vector>` for every client."""
    W, vector = native(W), native(vector)
    product = along if shared_out(W) else namespace(W).matmul
    parts = in_order(W, lambda: lambda block: product(W[:, block], vector[block]), column_blocks(W))
    return to_vector(sum(parts))


def combine_updates(coefficients: Vector, w: Array, W: Array) -> Array:
    """(P,) sum_k coefficients_k (W_k - w), which keeps its digits however small the updates are."""
    total = vector_like(w)
    into, w, W = native(total), native(w), native(W)
    xp, row, blocks = namespace(W), like(W, coefficients), column_blocks(W, written=True)

    def worker() -> Callable[[slice], None]:
        room = xp.empty_like(W[:, blocks[0]])

        def add(block: slice) -> None:
            updates = room[:, : block.stop - block.start]
            into[block] = row @ xp.subtract(W[:, block], w[block], out=updates)

        return add

    in_order(W, worker, blocks)
    return total

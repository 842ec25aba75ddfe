"""Passes over single vectors of a model's length."""

from collections.abc import Sequence

import numpy as np

from fedhaw.rules.base import Array, Vector, namespace
from fedhaw.rules.blocks import each, in_order, layer_blocks, vector_blocks
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes.arrays import astype, native


def dot(a: Array, b: Array) -> float:
    """The inner product `<a, b>`, summed in float64 over blocks."""
    a, b = native(a), native(b)
    return sum(in_order(a, lambda: lambda block: float(a[block] @ b[block]), vector_blocks(a)))


def products(*vectors: Array) -> Vector:
    """(n, n) inner products of n vectors with each other; vectors named twice are read once."""
    place: dict[int, int] = {}
    different = [place.setdefault(id(vector), len(place)) for vector in vectors]
    read = [native(vectors[different.index(i)]) for i in range(len(place))]
    xp, pairs = namespace(*read), list(zip(*np.tril_indices(len(read)), strict=True))

    def part(block: slice) -> list[float]:
        parts = [vector[block] for vector in read]
        if parts[0].itemsize <= 2:  # the square of a 16-bit number soon leaves its type
            parts = [astype(part, xp.float32) for part in parts]
        return [float(parts[i] @ parts[j]) for i, j in pairs]

    sums = np.zeros((len(read), len(read)))
    # Added up in the order of the blocks, so that the number of threads does not matter.
    sums[np.tril_indices(len(read))] = np.sum(
        in_order(read[0], lambda: part, vector_blocks(read[0])), axis=0
    )
    sums += np.tril(sums, -1).T
    return sums[np.ix_(different, different)]


def subtract(x: Array, y: Array) -> None:
    """The difference x - y, written over x, by all cores."""
    x, y = native(x), native(y)

    def part(block: slice) -> None:
        x[block] -= y[block]

    each(x, part, vector_blocks(x))


def blend(a: float, x: Array, b: float, y: Array) -> Array:
    """(P,) a x + b y, by all cores; what is in between never leaves the cache."""
    sums = vector_like(x)
    into, x, y = native(sums), native(x), native(y)

    def part(block: slice) -> None:
        into[block] = a * x[block] + b * y[block]

    each(x, part, vector_blocks(x))
    return sums


def stride(
    w: Array, before: Array, delta: Array, beta: float, step: float, scale: float
) -> tuple[Array, Array]:
    """(P,) the velocity v = beta before + delta, written over delta, and (P,) scale (w + step v).

    In one read of every vector, by all cores.
    """
    model = vector_like(w)
    into, w, before, moved = native(model), native(w), native(before), native(delta)

    def part(block: slice) -> None:
        velocity = moved[block]
        if beta:
            velocity += beta * before[block]
        into[block] = scale * w[block]
        into[block] += scale * step * velocity

    each(w, part, vector_blocks(w))
    return delta, model


def scale_layers(model: Array, layers: Sequence[slice], factors: Vector) -> None:
    """The product of each layer of a model and its factor, in place."""
    model = native(model)

    def scale(task: tuple[int, slice]) -> None:
        index, block = task
        model[block] *= float(factors[index])

    each(model, scale, layer_blocks(layers, model[None]))

"""Order statistics of every parameter over the clients, in one read of the matrix.

Sorting K numbers for each of P parameters would be P small sorts. Here whole rows are compared at
once: a sorting network is a fixed list of pairs (i, j), and for each the smaller numbers of two
rows go to row i and the larger ones to row j. That is two operations on a block that stays in
cache, the same on every backend.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from fedhaw.rules.base import Array, namespace
from fedhaw.rules.blocks import column_blocks, in_order
from fedhaw.rules.memory import vector_like
from fedhaw.rules.passes import native


def mean_of_ranks(W: Array, rows: Sequence[int], first: int, last: int) -> Array:
    """(P,) for every parameter the mean of its values of rank first..last-1 among some rows.

    Args:
        W: (K, P) the client models.
        rows: which n of them to rank; a parameter's smallest value has rank 0.
        first: the lowest rank that counts.
        last: the rank behind the highest that counts.
    """
    mean, part = vector_like(W[0]), 1 / (last - first)
    into, W = native(mean), native(W)
    xp, pairs = namespace(W), network(len(rows), first, last)
    blocks = column_blocks(W, written=True)

    def worker() -> Callable[[slice], None]:
        room = [xp.empty_like(W[0, blocks[0]]) for _ in range(len(rows) + 1)]

        def rank(block: slice) -> None:
            *values, spare = (memory[: block.stop - block.start] for memory in room)
            for value, row in zip(values, rows, strict=True):
                value[:] = W[row, block]
            for i, j in pairs:
                xp.minimum(values[i], values[j], out=spare)
                xp.maximum(values[i], values[j], out=values[j])
                values[i], spare = spare, values[i]
            into[block] = values[first] * part
            for value in values[first + 1 : last]:
                into[block] += value * part

        return rank

    in_order(W, worker, blocks)
    return mean


@lru_cache(maxsize=64)
def network(n: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The pairs to compare, in order, so that ranks first..last-1 of n values end in their place.

    Batcher's merge exchange sorts n values by about n log(n)^2 / 4 pairs (Knuth, The Art of
    Computer Programming 3, algorithm 5.2.2 M); pairs on which no wanted rank depends are left out.
    """
    wanted, pairs = set(range(first, last)), []
    for i, j in reversed(list(_merge_exchange(n))):
        if i in wanted or j in wanted:
            wanted |= {i, j}
            pairs.append((i, j))
    return tuple(reversed(pairs))


def _merge_exchange(n: int) -> Iterator[tuple[int, int]]:
    top = 1 << max((n - 1).bit_length() - 1, 0)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(n - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2

"""The matrix into which a round's models are decoded, each into its own row.

Rows lie in the order of the names under which clients are expected; should the names in the replies
give another order (in the first round, or after nodes have restarted) rows are moved in place,
because equal inputs must meet the arithmetic in equal order to give equal bits.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedhaw.flower.late import Overdue
from fedhaw.flower.layout import WireLayout
from fedhaw.late import moved_to


class Rows:
    """A row for the model of every node that the round is about.

    Args:
        layout: of a model.
        global_model: what was sent out: the learnt and the averaged part of the vector.
        matrix: (at least len(nodes), P) where models go; overwritten.
        nodes: whose rows these are.

    Attributes:
        of: the row of each node.
        rest: the whole-number arrays of each node's model.
        bytes: how many came in.
    """

    def __init__(
        self,
        layout: WireLayout,
        global_model: tuple[NDArray[Any], NDArray[Any]],
        matrix: NDArray[Any],
        nodes: Sequence[int],
    ) -> None:
        self.layout, self.global_model, self.matrix = layout, global_model, matrix
        self.of = {node: row for row, node in enumerate(nodes)}
        self.rest: dict[int, dict[str, Array]] = {}
        self.bytes = 0
        self._squares: dict[int, NDArray[np.float64]] = {}

    def write(self, node: int, arrays: ArrayRecord, sent: NDArray[Any]) -> None:
        """A node's model, written into its row and measured from the model that it was sent.

        Raises:
            Unreadable: it is no model of this layout.
        """
        self.bytes += sum(len(array.data) for array in arrays.values())
        self._squares[node] = self.layout.read(arrays, self.matrix[self.of[node]], sent)
        self.rest[node] = self.layout.rest(arrays)

    def lengths(self) -> dict[int, float]:
        """How far each node's model is from the one that it was sent."""
        return {node: math.sqrt(squares.sum()) for node, squares in self._squares.items()}

    def move(self, node: int, overdue: Overdue, age: int) -> None:
        """A late model, moved to where the global model is by now."""
        row = self.matrix[self.of[node], : self.layout.learnt]
        moved_to(self.global_model[0], overdue.sent, row, age)

    def gathered(self, nodes: Sequence[int], received: NDArray[np.bool_]) -> NDArray[Any]:
        """(K, P) the models of K nodes, the global model where none was received."""
        models = _gather(self.matrix, [self.of[node] for node in nodes])
        for row in np.flatnonzero(~received):
            self.layout.join(*self.global_model, out=models[row])
        return models


def _gather(matrix: NDArray[Any], sources: Sequence[int]) -> NDArray[Any]:
    """The rows `sources` of a matrix as its first rows, moved in place with one row to spare."""
    at = list(range(len(matrix)))  # which original row lies in each place
    place = list(at)  # where each original row lies
    spare: NDArray[Any] | None = None
    for target, source in enumerate(sources):
        here = place[source]
        if here == target:
            continue
        spare = np.empty_like(matrix[0]) if spare is None else spare
        spare[:] = matrix[target]
        matrix[target] = matrix[here]
        matrix[here] = spare
        moved = at[target]
        at[target], at[here] = source, moved
        place[source], place[moved] = target, here
    return matrix[: len(sources)]

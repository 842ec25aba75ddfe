"""What goes beside the models, in memory that the parent and its workers share.

What goes down lies there once. Each worker has a place for the memory of its present client, and
one each for what the client sends up and will remember: the parent copies from and to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedhaw.clients import ClientUpdate, Vectors, algorithm_of
from fedhaw.models import Layout
from fedhaw.simulation.engines.messages import Assignment
from fedhaw.simulation.engines.shared_memory import SharedTensor
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.vector_rows import RowLayout, copy_vectors

NAMES = ("down", "memory", "new_memory", "up")


@dataclass(frozen=True, eq=False)
class SharedBeside:
    """The places of one worker.

    Attributes:
        down: what goes down beside the global model.
        new_memory: what the present client will remember.
        up: what it sends up.
    """

    down: Vectors
    _memory: Vectors
    new_memory: Vectors
    up: Vectors

    @classmethod
    def over(cls, federation: Federation, tensors: Mapping[str, Tensor], index: int) -> Self:
        """The parent's view of a worker's places."""
        layouts = _layouts(federation.client_update, federation.layout)
        return cls(*(layouts[name].views(_place(name, tensors[name], index)) for name in NAMES))

    @classmethod
    def opened(cls, assignment: Assignment, index: int) -> Self | None:
        """A worker's view of its own places; None where there is nothing beside the models."""
        layouts = _layouts(assignment.client_update, assignment.layout)
        if not any(layout.size for layout in layouts.values()):
            return None
        handles = (getattr(assignment, name) for name in NAMES)
        tensors = dict(zip(NAMES, (handle.open() for handle in handles), strict=True))
        return cls(*(layouts[name].views(_place(name, tensors[name], index)) for name in NAMES))

    def memory(self, client: int) -> Vectors:
        """What the present client remembers."""
        return self._memory

    def keep(self, client: int, up: Vectors, memory: Vectors) -> None:
        """The present client's vectors, laid where the parent finds them."""
        copy_vectors(up, self.up)
        copy_vectors(memory, self.new_memory)

    def hand_over(self, memory: Vectors) -> None:
        """The memory of the client that comes next."""
        copy_vectors(memory, self._memory)


def shared_beside(federation: Federation, workers: int) -> dict[str, SharedTensor]:
    """Shared memory for so many workers, by name."""
    layouts = _layouts(federation.client_update, federation.layout)
    return {
        name: SharedTensor((1 if name == "down" else workers, layouts[name].size), torch.uint8)
        for name in NAMES
    }


def _layouts(client_update: ClientUpdate, layout: Layout) -> dict[str, RowLayout]:
    algorithm = algorithm_of(client_update)
    start = algorithm.init(layout.parameters)
    examples = (algorithm.broadcast(start.server), start.client, start.client, start.up)
    return dict(zip(NAMES, map(RowLayout, examples), strict=True))


def _place(name: str, tensor: Tensor, index: int) -> Tensor:
    return tensor[0 if name == "down" else index]

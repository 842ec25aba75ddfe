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
    def of(
        cls, client_update: ClientUpdate, layout: Layout, tensors: Mapping[str, Tensor], index: int
    ) -> Self:
        """The places of worker `index`, as the parent and the worker itself see them."""
        layouts = _layouts(client_update, layout)
        places = {name: tensors[name][0 if name == "down" else index] for name in NAMES}
        return cls(*(layouts[name].views(places[name]) for name in NAMES))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing beside the models."""
        return not (self.down or self.new_memory or self.up)

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

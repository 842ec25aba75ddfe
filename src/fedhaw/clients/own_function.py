"""A user's own function as a client algorithm: no memory, nothing beside the model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fedhaw.clients.algorithm import ClientAlgorithm, ClientResult, ClientRound

ClientFunction: TypeAlias = Callable[[nn.Module, Tensor, Tensor, torch.Generator], float | Tensor]
"""A user's own client update, ``update(module, x, y, generator) -> mean training loss``.

It is given a module that holds the global model, in training mode, the client's samples `x` and
labels `y`, and a generator that is the client's own for the round. What the module's parameters
hold when it returns is the client's model. Draw random numbers from the generator (torch's global
one is seeded from the same source) and the run repeats bit for bit.
"""


@dataclass(frozen=True)
class OwnFunction(ClientAlgorithm):
    """A function that trains a module, each time one that nobody has touched.

    A function may leave anything in its module: hooks, attributes, frozen parameters. The next
    client must not find it, for who comes next depends on the workers.

    Attributes:
        function: the user's.
    """

    function: ClientFunction

    def train(self, given: ClientRound) -> ClientResult:
        """The same as in `ClientAlgorithm`."""
        module = given.module
        loss = self.function(module, given.x, given.y, given.generator)
        # The function may have given the module other tensors than it found.
        return ClientResult(given.flatten(module), loss)

"""SCAFFOLD: clients that correct their steps by what the others would do.

Karimireddy et al. (2020), "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
Algorithm 1 with option II. Client k remembers c_k, the server c; both start at 0.

    client   w_k  <- w_k - eta (g - c_k + c), for a_k steps from w
             c_k' =  c_k - c + (w - w_k) / (a_k eta);   sends w_k and c_k' - c_k
    server   c'   =  c + (1/N) sum over received of (c_k' - c_k);   the rule makes the model

The first round, where every c is 0, is that of the plain steps. With momentum, a_k is the number of
plain steps that go as far. Down and up travel n numbers beside the model; a client keeps n. Clients
who are not there have their say through c.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedhaw.clients.algorithm import (
    ClientAlgorithm,
    ClientResult,
    ClientRound,
    ReceivedUploads,
    Start,
    Vectors,
)
from fedhaw.clients.update import LocalUpdate, require_sgd
from fedhaw.listing import listed


@listed(__name__, "scaffold")
@dataclass(frozen=True)
class SCAFFOLD(ClientAlgorithm):
    """SCAFFOLD over steps of SGD.

    Attributes:
        steps: what a client does in a round, but for the correction.
    """

    steps: LocalUpdate

    stackable: ClassVar[bool] = True
    speaks_for_absent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_sgd("SCAFFOLD", self.steps)

    def init(self, parameters: int) -> Start:
        """The same as in `ClientAlgorithm`: every c is 0."""
        zero = torch.zeros(parameters)
        return Start(server={"c": zero}, client={"c": zero}, up={"c": zero})

    def broadcast(self, server: Vectors) -> Vectors:
        """The same as in `ClientAlgorithm`."""
        return server

    def train(self, given: ClientRound) -> ClientResult:
        """The same as in `ClientAlgorithm`."""
        c, c_k = given.down["c"], given.memory["c"]
        correction = c - c_k
        trained = given.descend(self.steps, correction)
        new = (given.start - trained.parameters) / (trained.travelled * trained.eta) - correction
        return ClientResult(trained.model, trained.loss, up={"c": new - c_k}, memory={"c": new})

    def absorb(
        self, server: Vectors, received: ReceivedUploads, model: Tensor
    ) -> tuple[Tensor, Vectors]:
        """The same as in `ClientAlgorithm`."""
        c = server["c"].clone()
        for up in received.up:
            c.add_(up["c"], alpha=1 / received.population)
        return model, {"c": c}

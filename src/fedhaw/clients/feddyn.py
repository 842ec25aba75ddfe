"""FedDyn: clients whose loss is bent so that its minimum is the federation's.

Acar et al. (2021), "Federated Learning Based on Dynamic Regularization". Client k remembers h_k,
the gradient of its loss where it last stopped, and the server h, their mean; all start at 0.

    client   the loss gains -<h_k, w_k> + (alpha/2) |w_k - w|^2;   h_k' = h_k - alpha (w_k - w)
    server   h' = h - alpha (1/N) sum over received of (w_k - w);   model = rule's model - h'/alpha

With alpha 0 there is no correction. Nothing travels beside the model; a client keeps n numbers. The
first models lie far out, and the bent loss is the steeper the larger alpha: where a run diverges,
`clip` the gradient, as the authors do (10), or take a smaller alpha.
"""

from dataclasses import dataclass, replace
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
from fedhaw.clients.update import InvalidUpdate, LocalUpdate
from fedhaw.listing import listed


@listed(__name__, "feddyn")
@dataclass(frozen=True)
class FedDyn(ClientAlgorithm):
    """FedDyn over steps of any optimiser.

    Attributes:
        steps: what a client does in a round, but for the correction.
        alpha: how strongly clients are held to the global model; the authors try 0.001 to 0.1.
    """

    steps: LocalUpdate
    alpha: float = 0.01

    stackable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise InvalidUpdate(
                f"FedDyn's alpha is {self.alpha!r}; it must be a finite number, 0 or more."
            )

    def init(self, parameters: int) -> Start:
        """The same as in `ClientAlgorithm`: every h is 0."""
        zero = torch.zeros(parameters)
        return Start(server={"h": zero}, client={"h": zero})

    def train(self, given: ClientRound) -> ClientResult:
        """The same as in `ClientAlgorithm`."""
        h_k = given.memory["h"]
        held = replace(self.steps, proximal=self.steps.proximal + self.alpha)
        trained = given.descend(held, -h_k)
        new = h_k - self.alpha * (trained.parameters - given.start)
        return ClientResult(trained.model, trained.loss, memory={"h": new})

    def absorb(
        self, server: Vectors, received: ReceivedUploads, model: Tensor
    ) -> tuple[Tensor, Vectors]:
        """The same as in `ClientAlgorithm`."""
        if not self.alpha:
            return model, server
        h, moved = server["h"].clone(), torch.empty_like(model)
        for client_model in received.client_models:
            torch.sub(client_model, received.global_model, out=moved)
            h.add_(moved, alpha=-self.alpha / received.population)
        return model - h / self.alpha, {"h": h}

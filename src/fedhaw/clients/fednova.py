"""FedNova: updates counted by the step, so that who makes more steps has no more say.

Wang et al. (2020), "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization". With Delta_k = w_k - w and p_k = N_k / N,

    client   reports a_k, its number of steps; with momentum or a proximal term, the number of plain
             steps that go as far
    server   w' = w + (sum_k p_k a_k) sum_k p_k Delta_k / a_k

that is, before the rule every Delta_k is stretched to (mean of a) / a_k of its length, where the
mean is over the received, weighted by p_k. The rule is then any. Where all a_k are equal nothing
changes. One number travels up beside the model; nobody remembers anything.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedhaw.clients.algorithm import (
    ClientAlgorithm,
    ClientResult,
    ClientRound,
    ReceivedUploads,
    Start,
)
from fedhaw.clients.update import LocalUpdate, require_sgd
from fedhaw.listing import listed


@listed(__name__, "fednova")
@dataclass(frozen=True)
class FedNova(ClientAlgorithm):
    """FedNova over steps of SGD.

    Attributes:
        steps: what a client does in a round, but for the correction.
    """

    steps: LocalUpdate

    stackable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_sgd("FedNova", self.steps)

    def init(self, parameters: int) -> Start:
        """The same as in `ClientAlgorithm`."""
        return Start(up={"steps": torch.zeros(1)})

    def train(self, given: ClientRound) -> ClientResult:
        """The same as in `ClientAlgorithm`."""
        trained = given.descend(self.steps)
        return ClientResult(trained.model, trained.loss, up={"steps": trained.travelled})

    def scales(self, received: ReceivedUploads) -> NDArray[np.float64] | None:
        """The same as in `ClientAlgorithm`."""
        a = np.array([float(up["steps"]) for up in received.up])
        p = received.num_examples / received.num_examples.sum()
        # Formed from differences: exactly a_k where all are equal.
        mean = a[0] + (p * (a - a[0])).sum()
        scales: NDArray[np.float64] = mean / a
        return scales

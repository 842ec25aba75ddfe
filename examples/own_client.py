"""A client algorithm of your own, with a memory: clients that keep going where they were going.

Client k remembers m_k, the mean gradient of the round before, and adds a part of it to every
gradient of this one, as momentum does within a round:

    w_k  <- w_k - eta (g + beta m_k), for a_k steps from w
    m_k' =  (w - w_k) / (a_k eta) - beta m_k

What is remembered is handed in and handed back, so the same class runs in every engine and in
Flower, and is resumed from a checkpoint. A memory counts only if the client's upload arrived.
"""

from dataclasses import dataclass, field

import torch

import fedhaw
from fedhaw.clients import ClientAlgorithm, ClientResult, ClientRound, LocalUpdate, Start


@dataclass(frozen=True)
class KeepGoing(ClientAlgorithm):
    """Momentum from round to round."""

    steps: LocalUpdate = field(default_factory=lambda: LocalUpdate(eta=0.01, batch=32))
    beta: float = 0.5

    def init(self, parameters: int) -> Start:
        """Nothing is remembered at first."""
        return Start(client={"m": torch.zeros(parameters)})

    def train(self, given: ClientRound) -> ClientResult:
        """Steps that are pushed on, and the mean gradient to remember."""
        push = self.beta * given.memory["m"]
        trained = given.descend(self.steps, push)
        mean = (given.start - trained.parameters) / (trained.travelled * trained.eta) - push
        return ClientResult(trained.model, trained.loss, memory={"m": mean})


if __name__ == "__main__":
    for beta in (0.0, 0.5):
        history = fedhaw.simulate(
            fedhaw.FedAvg(), "mnist-5k", client_update=KeepGoing(beta=beta), rounds=12
        )
        print(f"beta {beta}: accuracy {history.accuracy[-1]:.3f}")

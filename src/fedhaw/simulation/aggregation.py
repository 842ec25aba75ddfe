"""The server's step: the rule learns the parameters, and running statistics are averaged.

A rule sees the first columns of the matrix only; see `fedhaw.rules.buffers` for the others.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedhaw.models import Layout
from fedhaw.models.threads import one_thread
from fedhaw.rules import Round, Rule, aggregate_surviving
from fedhaw.rules.buffers import averaged_buffers


@dataclass(frozen=True, eq=False)
class ServerStep:
    """What the server holds when a round's uploads are in, the stand-ins in place.

    Attributes:
        layout: how models lie in the vector.
        global_model: (P,) what was sent out.
        client_models: (K, P) what came back, a row per client.
        num_examples: (K,) how many samples each client holds.
        received: (K,) which rows the rule may call received.
        clients: K names.
        late: those of them whose upload came late.
        refused: those of them whose upload came and was too long to be taken.
    """

    layout: Layout
    global_model: Tensor
    client_models: Tensor
    num_examples: NDArray[np.int64]
    received: NDArray[np.bool_]
    clients: Sequence[int]
    late: Collection[int] = ()
    refused: Collection[int] = ()

    def aggregate(self, rule: Rule[Any], state: Any) -> tuple[Any, Any, dict[Any, str]]:
        """What the rule makes of the parameters, its state, and whom it refused and why.

        Whoever was refused has the global model's buffers, as well as its parameters, from here on.
        """
        learnt = self.layout.parameters
        current = Round(
            global_model=self.global_model[:learnt],
            client_models=self.client_models[:, :learnt],
            num_examples=self.num_examples,
            received=self.received,
            clients=self.clients,
            layers=[layer for layer in self.layout.layers if layer.stop <= learnt],
            late=[client in self.late for client in self.clients],
            refused=[client in self.refused for client in self.clients],
        )
        # Sums are formed in one order on any machine. Nor would more threads help: they wait for
        # each other after every short operation, and on a machine with other work to do, FedLAW's
        # hundreds of steps a round then take a hundred times as long.
        with one_thread():
            new, state, refused = aggregate_surviving(rule, state, current)
        for position, client in enumerate(self.clients):
            if client in refused:
                self.client_models[position, learnt:] = self.global_model[learnt:]
        return new, state, refused

    def with_buffers(self, parameters: Tensor, state: Any) -> Tensor:
        """(P,) the new parameters, and behind them the clients' averaged buffers."""
        learnt = self.layout.parameters
        if learnt == self.layout.size:
            return parameters
        rows = self.client_models[:, learnt:]
        return torch.cat(
            [parameters, averaged_buffers(rows, state, self.clients, self.num_examples)]
        )

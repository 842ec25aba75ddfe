"""What the server uses in place of an upload that did not arrive.

- ``"global"`` (the letter): the global model that was sent out, so the client pulls towards "no
  change". The rule is told that the upload was lost.
- ``"last"``: the client's last model that did arrive; the global model if none ever did. The rule
  takes it for an upload. The server must keep a model of every client: K x P numbers, of which a
  row is touched only once its client has been heard of.
- ``"none"``: nothing; the round consists of the arrivals.

A round in which nothing arrives leaves the model as it is, whichever was chosen.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

StandIn: TypeAlias = Literal["global", "last", "none"]


class LastModels:
    """The last model of each client that arrived.

    Args:
        clients: K.
        parameters: P.
        device: where models live.
    """

    def __init__(self, clients: int, parameters: int, device: torch.device) -> None:
        # Memory that is never written is never taken from the machine.
        self._models = torch.empty((clients, parameters), device=device)
        self._known = np.zeros(clients, dtype=np.bool_)

    def keep(self, cohort: Sequence[int], models: Tensor, lost: Container[int]) -> None:
        """Remember the rows of `models`, (K, P), of the clients that were not lost."""
        for client, model in zip(cohort, models, strict=True):
            if client not in lost:
                self._models[client] = model
                self._known[client] = True

    def fill(
        self,
        cohort: Sequence[int],
        models: Tensor,
        arrived: NDArray[np.bool_],
        global_model: Tensor,
    ) -> NDArray[np.bool_]:
        """Overwrite the rows that did not arrive; return which rows the rule may call received."""
        for position in np.flatnonzero(~arrived).tolist():
            client = cohort[position]
            models[position] = self._models[client] if self._known[client] else global_model
        received: NDArray[np.bool_] = arrived | self._known[np.asarray(cohort)]
        return received

    def pack(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores: who is known, and their models."""
        clients = np.flatnonzero(self._known)
        return {
            "clients": clients.astype(np.int64),
            "models": self._models[torch.from_numpy(clients)].cpu().numpy(),
        }

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `pack` gave."""
        clients = arrays["clients"].astype(np.int64)
        self._known[:] = False
        self._known[clients] = True
        models = torch.from_numpy(arrays["models"]).to(self._models.device)
        self._models[torch.from_numpy(clients)] = models


def fill_with_global(models: Tensor, arrived: NDArray[np.bool_], global_model: Tensor) -> None:
    """Overwrite the rows of `models`, (K, P), that did not arrive."""
    for position in np.flatnonzero(~arrived).tolist():
        models[position] = global_model


def move_arrivals_up(models: Tensor, arrived: NDArray[np.bool_]) -> Tensor:
    """The rows that arrived, as the first rows of the same buffer: no second matrix is made."""
    positions = np.flatnonzero(arrived).tolist()
    for target, position in enumerate(positions):
        if target != position:
            models[target] = models[position]
    return models[: len(positions)]

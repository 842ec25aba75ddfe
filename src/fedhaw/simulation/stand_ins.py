"""What the server uses in place of an upload that did not arrive.

- ``"global"`` (the letter): the global model that was sent out, so the client pulls towards "no
  change". The rule is told that the upload was lost.
- ``"last"``: the client's last model that did arrive; the global model if none ever did. The rule
  takes it for an upload. The server keeps a model of every client it has heard from: in the end
  K x P numbers.
- ``"none"``: nothing; the round consists of the arrivals.

A round in which nothing arrives leaves the model as it is, whichever was chosen.
"""

from collections.abc import Container, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class LastModels:
    """The last model of each client that arrived.

    Args:
        parameters: P.
        device: where models live.
    """

    def __init__(self, parameters: int, device: torch.device) -> None:
        self._parameters, self._device = parameters, device
        self._models: dict[int, Tensor] = {}

    def keep(self, cohort: Sequence[int], models: Tensor, lost: Container[int]) -> None:
        """A kept copy of the rows of `models`, (K, P), of the clients that were not lost."""
        for client, model in zip(cohort, models, strict=True):
            if client not in lost:
                self._row(client).copy_(model)

    def fill(
        self,
        cohort: Sequence[int],
        models: Tensor,
        received: NDArray[np.bool_],
        global_model: Tensor,
    ) -> NDArray[np.bool_]:
        """Stand-ins for rows that were not received; returns which rows the rule takes as such."""
        for position in np.flatnonzero(~received).tolist():
            client = cohort[position]
            models[position] = self._models.get(client, global_model)
        known = np.array([client in self._models for client in cohort], dtype=np.bool_)
        with_known: NDArray[np.bool_] = received | known
        return with_known

    def pack(self) -> dict[str, NDArray[np.generic]]:
        """What a checkpoint stores: who is known, and their models."""
        clients = sorted(self._models)
        models = np.empty((len(clients), self._parameters), dtype=np.float32)
        for row, client in zip(models, clients, strict=True):
            row[:] = self._models[client].cpu().numpy()
        return {"clients": np.array(clients, dtype=np.int64), "models": models}

    def unpack(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """The state that `pack` gave, taken over."""
        self._models.clear()
        for client, model in zip(arrays["clients"].tolist(), arrays["models"], strict=True):
            self._row(client).copy_(torch.from_numpy(model))

    def _row(self, client: int) -> Tensor:
        """(P,) the client's place, made when it is first heard from."""
        if client not in self._models:
            self._models[client] = torch.empty(self._parameters, device=self._device)
        return self._models[client]


def fill_with_global(models: Tensor, received: NDArray[np.bool_], global_model: Tensor) -> None:
    """The global model, written over the rows of `models`, (K, P), that were not received."""
    for position in np.flatnonzero(~received).tolist():
        models[position] = global_model


def move_received_up(models: Tensor, received: NDArray[np.bool_]) -> Tensor:
    """The received rows, as the first rows of the same buffer: no second matrix is made."""
    positions = np.flatnonzero(received).tolist()
    for target, position in enumerate(positions):
        if target != position:
            models[target] = models[position]
    return models[: len(positions)]

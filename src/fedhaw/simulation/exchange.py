"""What a client algorithm has besides models, carried through the rounds of a simulation."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fedhaw.checkpoints import CheckpointError, Part, Parts
from fedhaw.clients import ClientAlgorithm, ReceivedUploads, Start, Vectors, algorithm_of
from fedhaw.simulation.aggregation import ServerStep
from fedhaw.simulation.client_memory import ClientMemories
from fedhaw.simulation.errors import AFRESH, InvalidSimulation
from fedhaw.simulation.federation import Federation
from fedhaw.simulation.vector_rows import bytes_of, copy_vectors


@dataclass
class Exchange:
    """Where an algorithm stands between two rounds.

    Attributes:
        algorithm: the clients'.
        start: its memories before the first round, where models live.
        population: how many clients there are.
        server: the server's memory.
        memories: the clients'; None if they have none.
    """

    algorithm: ClientAlgorithm
    start: Start
    population: int
    server: Vectors
    memories: ClientMemories | None

    @classmethod
    def begin(cls, federation: Federation, path: Path | None, parts: Parts | None) -> Self | None:
        """An exchange at its beginning, or as a checkpoint has it; None if there is nothing.

        Args:
            federation: what is simulated.
            path: of the file for the clients' memories; None for one without a name.
            parts: of the checkpoint, or None.
        """
        algorithm, device = algorithm_of(federation.client_update), federation.device
        start = algorithm.init(federation.layout.parameters)
        if not start.remembers:
            return None
        server: Vectors = {name: vector.to(device) for name, vector in start.server.items()}
        if parts is not None:
            server = _stored(parts, server)
        memories = None
        if start.client:
            part = None if parts is None else parts.get("clients", Part({}, {}))
            memories = ClientMemories(start.client, path, part)
        return cls(algorithm, start, federation.clients, server, memories)

    def round(self, cohort: Sequence[int]) -> "RoundExchange":
        """The exchange of one round."""
        reserved: dict[int, int] = {}
        if self.memories is not None:
            reserved = dict(zip(cohort, self.memories.reserve(len(cohort)), strict=True))
        return RoundExchange(self, self.algorithm.broadcast(self.server), reserved)

    def pack(self) -> dict[str, Part]:
        """The parts of a checkpoint."""
        server = {name: vector.cpu().numpy() for name, vector in self.server.items()}
        parts = {"server": Part(server, {})}
        return parts if self.memories is None else {**parts, "clients": self.memories.pack()}

    def saved(self) -> None:
        """A checkpoint with what `pack` gave is on the disk."""
        if self.memories is not None:
            self.memories.saved()

    def close(self) -> None:
        """The release of the clients' memories."""
        if self.memories is not None:
            self.memories.close()


@dataclass
class RoundExchange:
    """One round's exchange; what an engine knows of it is `Beside`.

    Attributes:
        exchange: that it belongs to.
        down: what goes down beside the global model.
        reserved: for each client a row for its new memory.
    """

    exchange: Exchange
    down: Vectors
    reserved: dict[int, int]
    _up: dict[int, Vectors] = field(default_factory=dict)

    def memory(self, client: int) -> Vectors:
        """What a client remembers; not to be written to."""
        memories = self.exchange.memories
        return {} if memories is None else memories.of(client)

    def keep(self, client: int, up: Vectors, memory: Vectors) -> None:
        """A copy of what a client sends up, and of what it will remember if that arrives."""
        self._up[client] = {name: vector.clone() for name, vector in up.items()}
        if self.exchange.memories is not None:
            copy_vectors(memory, self.exchange.memories.place(self.reserved[client]))

    def stretch(self, step: ServerStep, lost: Collection[int]) -> None:
        """The updates as the algorithm wants them before the rule, written over the step's rows."""
        received = self._received(step, lost)
        scales = self.exchange.algorithm.scales(received)
        if scales is None:
            return
        w = received.global_model
        for row, scale in zip(received.client_models, scales.tolist(), strict=True):
            if scale != 1.0:
                torch.lerp(w, row, scale, out=row)

    def absorb(self, step: ServerStep, lost: Collection[int], model: Tensor) -> Tensor:
        """(n,) the model after the algorithm's part of the server, which remembers it."""
        received, exchange = self._received(step, lost), self.exchange
        if not received.clients:
            return model
        name = type(exchange.algorithm).__name__
        new, server = exchange.algorithm.absorb(exchange.server, received, model)
        if not isinstance(new, Tensor) or (new.shape, new.dtype) != (model.shape, model.dtype):
            raise InvalidSimulation(
                f"absorb of {name} returned no {model.dtype} model of shape {tuple(model.shape)}; "
                "return the model it was given, or one like it."
            )
        if not _alike(server, exchange.start.server):
            raise InvalidSimulation(
                f"absorb of {name} returned another server memory than init declares; keep names, "
                "shapes and types."
            )
        if new is not model and not bool(new.isfinite().all()):
            raise InvalidSimulation(
                f"The model is no longer finite after {name}; lower the learning rate, or clip "
                "gradients with clip."
            )
        exchange.server = server
        return new

    def settle(self, lost: Collection[int]) -> None:
        """The end of the round: whose upload arrived remembers it."""
        if self.exchange.memories is not None:
            moved = {client for client in self._up if client not in lost}
            self.exchange.memories.settle(self.reserved, moved)

    @property
    def bytes_down(self) -> int:
        """Bytes that go down to each client beside the model."""
        return bytes_of(self.down)

    @property
    def bytes_up(self) -> int:
        """Bytes that come up from each client beside its model."""
        return bytes_of(self.exchange.start.up)

    def _received(self, step: ServerStep, lost: Collection[int]) -> ReceivedUploads:
        learnt = step.layout.parameters
        positions = [k for k, client in enumerate(step.clients) if client not in lost]
        clients = [step.clients[k] for k in positions]
        return ReceivedUploads(
            clients=clients,
            global_model=step.global_model[:learnt],
            client_models=[step.client_models[k, :learnt] for k in positions],
            up=[self._up[client] for client in clients],
            num_examples=np.asarray(step.num_examples, dtype=np.float64)[positions],
            population=self.exchange.population,
        )


def _alike(vectors: Vectors, declared: Vectors) -> bool:
    return vectors.keys() == declared.keys() and all(
        isinstance(vectors[name], Tensor)
        and vectors[name].shape == example.shape
        and vectors[name].dtype == example.dtype
        for name, example in declared.items()
    )


def _stored(parts: Parts, declared: Vectors) -> Vectors:
    arrays = parts["server"].arrays if "server" in parts else {}
    device = next(iter(declared.values())).device if declared else None
    server = {name: torch.tensor(array, device=device) for name, array in arrays.items()}
    if not _alike(server, declared):
        raise CheckpointError(
            "The checkpoint has another server memory than the client algorithm; its code was "
            f"changed: {AFRESH}."
        )
    return server

"""What a client algorithm has besides models, in Flower: down and up as records of their own.

    server -> client   the model; BESIDE: what goes down; TOLD: {"accepted": a}
    client -> server   the model; BESIDE: what goes up;   TOLD: {"memory": m}

A client's memory lives in its node's context and moves on only when its upload arrived. Only the
server knows that, so it says with every question which of the client's rounds it accepted last: a.
The client then remembers what it made of round a, or the start if a is 0, and says with its answer
which round that memory is of: m. A node that was restarted has forgotten: it answers m = 0 where
the server expects a, starts afresh, and is named.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from fedhaw.checkpoints import CheckpointError, Part, Parts
from fedhaw.clients import ClientUpdate, ReceivedUploads, Vectors, algorithm_of
from fedhaw.flower.errors import FlowerError
from fedhaw.flower.replies import ACCEPTED, BESIDE, MEMORY, TOLD
from fedhaw.flower.uploads import Uploads
from fedhaw.flower.wire import Unreadable, decoded, pack
from fedhaw.rules import LengthGuard


def to_record(vectors: Vectors) -> ArrayRecord:
    """Vectors by name as Flower's record."""
    record = ArrayRecord()
    for name, vector in vectors.items():
        values = vector.detach().cpu().numpy()
        record[name] = pack(values, values.shape, values.dtype)
    return record


def from_record(record: ArrayRecord | None, declared: Vectors) -> dict[str, Tensor]:
    """The vectors of a record that should hold what is declared.

    Raises:
        Unreadable: it does not.
    """
    found = {} if record is None else dict(record.items())
    if found.keys() != declared.keys():
        raise Unreadable(
            f"beside the model came {_names(found)}, and the algorithm has {_names(declared)}"
        )
    vectors = {}
    for name, example in declared.items():
        values = torch.tensor(decoded(found[name]))
        if values.shape != example.shape or values.dtype != example.dtype:
            raise Unreadable(f"{name!r} beside the model is of another shape or type")
        if not bool(values.isfinite().all()):
            raise Unreadable(f"{name!r} beside the model is not finite")
        vectors[name] = values
    return vectors


@dataclass
class Beside:
    """The server's part of a client algorithm.

    Args:
        client_update: the clients'.

    Attributes:
        accepted: by client, the round, counted from 1, of its last upload that arrived.
    """

    client_update: ClientUpdate
    accepted: dict[str, int] = field(default_factory=dict)
    _server: Vectors | None = None
    _up: dict[str, Vectors] = field(default_factory=dict)
    _guard: LengthGuard = field(default_factory=LengthGuard)

    def __post_init__(self) -> None:
        self._algorithm = algorithm_of(self.client_update)

    def begin(self, parameters: int) -> None:
        """The start of a run, for models with so many trainable numbers."""
        self._start = self._algorithm.init(parameters)
        self._server, self.accepted = self._start.server, {}
        self._guard = LengthGuard()

    def questions(self, content: Mapping[str, Any]) -> Callable[[str], RecordDict]:
        """What each client is sent: `content`, what goes down, and which of its rounds arrived."""
        assert self._server is not None
        down = to_record(self._algorithm.broadcast(self._server))

        def question(client: str) -> RecordDict:
            told = ConfigRecord({ACCEPTED: self.accepted.get(client, 0)})
            return RecordDict({**content, BESIDE: down, TOLD: told})

        return question

    def judge(self, answers: Mapping[str, ArrayRecord | None]) -> dict[str, str]:
        """What came up from each client, looked at; why some are refused."""
        self._up, refused = {}, {}
        for client, record in answers.items():
            try:
                self._up[client] = from_record(record, self._start.up)
            except Unreadable as error:
                refused[client] = str(error)
        lengths = {
            client: float(sum(float(v.double().square().sum()) for v in up.values())) ** 0.5
            for client, up in self._up.items()
        }
        absurd, self._guard = self._guard.judge(lengths, dict.fromkeys(lengths, 1.0))
        return {**refused, **{c: f"beside its model, {reason}" for c, reason in absurd.items()}}

    def stretch(self, arrived: ReceivedUploads) -> None:
        """The updates as the algorithm wants them before the rule, written over the models."""
        scales = self._algorithm.scales(arrived)
        if scales is not None:
            w = arrived.global_model
            for row, scale in zip(arrived.client_models, scales.tolist(), strict=True):
                torch.lerp(w, row, scale, out=row)

    def absorb(self, arrived: ReceivedUploads, model: NDArray[Any]) -> NDArray[Any]:
        """(n,) the model after the algorithm's part of the server, which remembers it.

        Raises:
            FlowerError: the algorithm made the model infinite.
        """
        assert self._server is not None
        new, server = self._algorithm.absorb(self._server, arrived, torch.from_numpy(model))
        if not bool(new.isfinite().all()):
            raise FlowerError(
                f"The model is no longer finite after {type(self._algorithm).__name__}; lower the "
                "clients' learning rate, and go back to an earlier round with resume_from=."
            )
        self._server = server
        return new.numpy()

    def arrived(
        self, uploads: Uploads, received: NDArray[np.bool_], global_model: NDArray[Any]
    ) -> ReceivedUploads:
        """What was received, as an algorithm wants it; the models are not copied."""
        rows = np.flatnonzero(received).tolist()
        clients = [uploads.clients[row] for row in rows]
        models = uploads.models[:, : len(global_model)]
        return ReceivedUploads(
            clients=clients,
            global_model=torch.from_numpy(global_model),
            client_models=[torch.from_numpy(models[row]) for row in rows],
            up=[self._up[client] for client in clients],
            num_examples=uploads.examples[rows],
            population=uploads.population,
        )

    def settle(self, rounds: Mapping[str, int], memories: Mapping[str, int]) -> list[str]:
        """The end of a round: whose upload arrived, and who had forgotten.

        Args:
            rounds: by client whose upload arrived, the round it was asked in.
            memories: by client, the round its memory was of, in its own words.

        Returns:
            A sentence on each client that has lost its memory.
        """
        lost = [
            f"client {client} has lost what it remembered of round {expected} and starts afresh"
            for client in rounds
            if self._start.client
            and (expected := self.accepted.get(client, 0))
            and memories.get(client, 0) != expected
        ]
        self.accepted.update(rounds)
        return lost

    def parts(self) -> dict[str, Part]:
        """What a checkpoint keeps."""
        assert self._server is not None
        arrays = {name: vector.numpy() for name, vector in self._server.items()}
        return {"beside": Part(arrays, {"accepted": self.accepted})}

    def restore(self, parts: Parts) -> None:
        """A return to where `parts` were taken.

        Raises:
            CheckpointError: they are of another client algorithm.
        """
        part = parts.get("beside")
        if part is None or part.arrays.keys() != self._start.server.keys():
            raise CheckpointError(
                f"The checkpoint is of another client algorithm than "
                f"{type(self._algorithm).__name__}; start afresh with resume_from=0."
            )
        self._server = {name: torch.tensor(array) for name, array in part.arrays.items()}
        self.accepted = {client: int(at) for client, at in part.facts["accepted"].items()}


@dataclass(frozen=True)
class NodeMemory:
    """What a node remembers of a run, in its context.

    Attributes:
        state: the context's.
        declared: the memory of a client that was never heard from.
    """

    state: RecordDict
    declared: Vectors

    def recall(self, accepted: int) -> tuple[Vectors, int]:
        """The memory of the round that the server accepted last, and which round that is.

        The start, and 0, if the server accepted none or the node has forgotten it.
        """
        for key in ("fedhaw-memory", "fedhaw-memory-before"):
            told, record = self.state.get(f"{key}-of"), self.state.get(key)
            if (
                accepted
                and isinstance(told, ConfigRecord)
                and isinstance(record, ArrayRecord)
                and told.get(MEMORY) == accepted
            ):
                return from_record(record, self.declared), accepted
        return self.declared, 0

    def keep(self, memory: Vectors, server_round: int, before: Vectors, of: int) -> None:
        """The new memory beside the one before: the server's next word tells which one counts."""
        for key, vectors, at in (
            ("fedhaw-memory", memory, server_round),
            ("fedhaw-memory-before", before, of),
        ):
            self.state[key] = to_record(vectors)
            self.state[f"{key}-of"] = ConfigRecord({MEMORY: at})


def _names(vectors: Mapping[str, object]) -> str:
    return ", ".join(map(repr, vectors)) or "nothing"

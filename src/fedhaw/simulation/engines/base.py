"""What an engine is: something that trains a cohort of clients, one model each.

The round loop knows engines only through `Engine`. Every engine gives the same answer, to the bit
where it has the same `arithmetic`, and differs only in speed, because a client's randomness comes
from (seed, client, round) and from nothing else: not from who else takes part, in which order
clients are trained, or by how many workers. (In a stack, who else is in it tells in the last bits.)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from torch import Tensor

from fedhaw.clients import Vectors


@dataclass(frozen=True)
class ClientReport:
    """How one client's round went.

    Attributes:
        client: its number, 0..K-1.
        loss: mean training loss over every sample it visited in the round; NaN when it failed.
        seconds: how long it trained. Clients trained as one batched model share the time equally.
        failure: why there is no model, in a few words; None when all went well.
        length: |w_k - w|, how far its parameters moved; NaN when it failed.
        metrics: what its algorithm has to say, by name.
    """

    client: int
    loss: float
    seconds: float
    failure: str | None = None
    length: float = math.nan
    metrics: Mapping[str, float] = field(default_factory=dict)


class Beside(Protocol):
    """What goes down, goes up and is remembered beside the models of one round."""

    @property
    def down(self) -> Vectors:
        """What goes down beside the global model."""

    def memory(self, client: int) -> Vectors:
        """What a client remembers; not to be written to."""

    def keep(self, client: int, up: Vectors, memory: Vectors) -> None:
        """A copy of what a client sends up, and of what it will remember if that arrives."""


@dataclass(frozen=True, eq=False)
class TrainingRound:
    """What is to be trained in a round, and where it goes.

    Attributes:
        round_index: which round this is; with the seed and the client it fixes all randomness.
        global_model: (P,) float32, where every client starts; left as it is.
        cohort: distinct client numbers.
        out: (P,) float32 each; `out[i]` receives the model of `cohort[i]`. That of a failed client
            is undefined.
        beside: what there is besides models; None where the algorithm has nothing.
    """

    round_index: int
    global_model: Tensor
    cohort: Sequence[int]
    out: Sequence[Tensor]
    beside: Beside | None = None


class Engine(Protocol):
    """An engine that trains clients; made by `fedhaw.simulation.engines.create`.

    Attributes:
        arithmetic: engines with the same one give the same bits; stands in the history.
    """

    arithmetic: ClassVar[str]

    def train(self, given: TrainingRound) -> list[ClientReport]:
        """The training of every client of the cohort; a report of each, in the cohort's order.

        A client that fails never stops the round: its report says why.
        """

    def close(self) -> None:
        """The release of workers and memory; calling it twice is fine."""

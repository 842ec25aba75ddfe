"""What a client algorithm is: how clients train, what they remember, what travels with the model.

    start            = algorithm.init(n)                        memories before the first round
    down             = algorithm.broadcast(server)              what goes down beside w
    w_k, up, client' = algorithm.train(given)                   on the client; `given` has w, down,
                                                                its memory, its samples, ...
    scales           = algorithm.scales(received)               before the rule; None for most
    model', server'  = algorithm.absorb(server, received, model)   after the rule

All are pure functions: what is remembered is handed in and handed back, as vectors with names, so
the same object runs in every engine and in Flower, and is resumed from a checkpoint bit for bit. A
client's new memory counts only if its upload arrived; otherwise it finds the earlier one again.

The n trainable numbers of a model come first among its P numbers; the others, if there are any, are
batch norm's running statistics, which no algorithm needs to know of. An algorithm of your own is a
frozen dataclass that derives from `ClientAlgorithm` and defines `train`, and of the others what it
needs; see docs/client-algorithms.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.flat import FlatModule
from fedhaw.models.layout import Layout

if TYPE_CHECKING:
    from fedhaw.clients.update import LocalUpdate

Vectors: TypeAlias = Mapping[str, Tensor]
"""Vectors by name, each (n,) or of a few numbers. Their names, shapes and types never change in a
run: they lie in files and shared memory, and travel as one record."""


@dataclass(frozen=True, eq=False)
class Start:
    """What there is before the first round.

    Attributes:
        server: the server's memory.
        client: the memory of a client that was never heard from.
        up: what goes up beside a model, as an example; only names, shapes and types count.
    """

    server: Vectors = field(default_factory=dict)
    client: Vectors = field(default_factory=dict)
    up: Vectors = field(default_factory=dict)

    @property
    def remembers(self) -> bool:
        """Whether there is anything besides models."""
        return bool(self.server or self.client or self.up)


@dataclass(frozen=True, eq=False)
class Trained:
    """What steps of a `LocalUpdate` made of the global model.

    Attributes:
        model: (P,) the client's model, a window that the next client's training writes over.
        parameters: (n,) its trainable numbers, a window too.
        loss: mean loss over all samples visited.
        steps: the update's settings, the learning rate as it was in this round.
        counts: how many steps the client made; one number for each client of a stack.
    """

    model: Tensor
    parameters: Tensor
    loss: float | Tensor
    steps: "LocalUpdate"
    counts: tuple[int, ...]

    @property
    def eta(self) -> float:
        """The learning rate of this round."""
        return self.steps.eta

    @property
    def travelled(self) -> Tensor:
        """(1,) a_k: the number of plain steps that go as far along a constant gradient.

        Without momentum and proximal term this is the number of steps.
        """
        ways = [self.steps.travelled(count) for count in self.counts]
        distances = torch.tensor(ways, dtype=torch.float32, device=self.model.device)
        return distances if self.model.ndim == 1 else distances.unsqueeze(1)


Descend: TypeAlias = "Callable[[LocalUpdate, Tensor | None], Trained]"
"""(steps, (n,) vector that every gradient gains, or None) -> what they make of the global model."""


@dataclass(frozen=True, eq=False)
class ClientRound:
    """What a client is given in a round.

    An algorithm that says it is `stackable` may be given several clients at once; each vector of
    `memory`, and of what `descend` returns, then has a row for each.

    Attributes:
        clients: the client's number; several in a stack.
        round_index: which round it is, from 0.
        global_model: (P,) w, where training starts; not to be written to.
        down: what came down beside it.
        memory: what the client remembers.
        generator: the client's own for the round; the source of whatever is random.
        layout: how models lie in the vector.
        engine: makes steps of a `LocalUpdate`, see `descend`.
        samples: a function that returns x and y.
        template: a module of the model's kind, which nobody may change.
    """

    clients: tuple[int, ...]
    round_index: int
    global_model: Tensor
    down: Vectors
    memory: Vectors
    generator: torch.Generator
    layout: Layout
    engine: Descend
    samples: Callable[[], tuple[Tensor, Tensor]]
    template: nn.Module

    @property
    def client(self) -> int:
        """The client's number."""
        (client,) = self.clients
        return client

    @property
    def start(self) -> Tensor:
        """(n,) the trainable numbers of the global model."""
        return self.global_model[: self.layout.parameters]

    def descend(self, steps: "LocalUpdate", linear: Tensor | None = None) -> Trained:
        """Steps of a `LocalUpdate` from the global model, as fast as the engine can.

        Args:
            steps: the settings of a client's training, as `simulate` makes them.
            linear: (n,) a vector that every gradient gains: the loss gains `<linear, w_k>`.
        """
        return self.engine(steps.at(self.round_index), linear)

    @cached_property
    def _samples(self) -> tuple[Tensor, Tensor]:
        return self.samples()

    @property
    def x(self) -> Tensor:
        """(N_k, ...) the client's samples."""
        return self._samples[0]

    @property
    def y(self) -> Tensor:
        """(N_k,) their labels."""
        return self._samples[1]

    @cached_property
    def module(self) -> nn.Module:
        """A module that holds the global model, in training mode, for the client to train."""
        return self.module_of(self.global_model)

    def module_of(self, model: Tensor) -> nn.Module:
        """A further module, in training mode, that holds a model, (P,)."""
        flat = FlatModule(self.template, self.layout, self.global_model.device)
        flat.start(model)
        return flat.module.train()

    def flatten(self, module: nn.Module) -> Tensor:
        """(P,) a copy of what a module holds."""
        return self.layout.flatten(module)

    def batches(self, batch: int, epochs: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """The client's samples and labels in batches, in a new order each epoch."""
        sizes = batch_sizes(len(self.y), batch, join_lone=bool(batch_norms(self.template)))
        for _ in range(epochs):
            order = torch.randperm(len(self.y), generator=self.generator).to(self.y.device)
            for chosen in torch.split(order, sizes):
                yield self.x[chosen], self.y[chosen]


@dataclass(frozen=True, eq=False)
class ClientResult:
    """What a client gives back.

    Attributes:
        model: (P,) its model.
        loss: its mean training loss.
        up: what goes up beside the model, as `Start.up` declares it.
        memory: what it remembers from now on, as `Start.client` declares it.
        metrics: named numbers for the history, which shows their mean over clients.
    """

    model: Tensor
    loss: float | Tensor
    up: Vectors = field(default_factory=dict)
    memory: Vectors = field(default_factory=dict)
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ReceivedUploads:
    """What arrived at the server in a round; lost uploads do not show.

    Attributes:
        clients: the names of the A clients whose uploads arrived.
        global_model: (n,) w, what was sent out.
        client_models: A vectors (n,), what came back; not to be written to.
        up: what came up beside each.
        num_examples: (A,) how many samples each client holds.
        population: N, how many clients there are, whether they took part or not.
    """

    clients: Sequence[int | str]
    global_model: Tensor
    client_models: Sequence[Tensor]
    up: Sequence[Vectors]
    num_examples: NDArray[np.float64]
    population: int


@runtime_checkable
class ClientAlgorithm(Protocol):
    """A client algorithm; see the head of this file.

    Attributes:
        stackable: whether `train` takes a stack of clients: it uses `given.descend` and operations
            that work on (n,) and on (A, n) alike, and nothing else.
        speaks_for_absent: whether updates hold already what clients who are not there would do, so
            that a rule that may replay those better does not: it would count them twice.
    """

    stackable: ClassVar[bool] = False
    speaks_for_absent: ClassVar[bool] = False

    def init(self, parameters: int) -> Start:
        """The memories before the first round, for models with so many trainable numbers, n."""
        return Start()

    def broadcast(self, server: Vectors) -> Vectors:
        """What goes down beside the model, the same for every client."""
        return {}

    def train(self, given: ClientRound) -> ClientResult:
        """A client's round; whatever it raises, the client is lost for the round."""
        ...

    def scales(self, received: ReceivedUploads) -> NDArray[np.float64] | None:
        """(A,) by how much each update w_k - w is stretched before the rule; None for not at all.

        For algorithms that have to act before the rule, whichever it is.
        """
        return None

    def absorb(
        self, server: Vectors, received: ReceivedUploads, model: Tensor
    ) -> tuple[Tensor, Vectors]:
        """The global model after the rule, and the server's memory from now on.

        Args:
            server: its memory so far.
            received: what arrived and was used by the rule, at least one upload.
            model: (n,) what the rule made of the models.
        """
        return model, server

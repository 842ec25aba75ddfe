"""Training many clients at once, as one batched model.

Clients hold different numbers of samples. Sorted by that number, longest first, the ones that still
have a full batch in step s are the first so many rows of every matrix, and those on their last,
smaller batch follow them, equal sizes side by side. So every step works on a few contiguous blocks
of rows: nothing is padded, masked or copied, and each client computes what it would alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import torch
from torch import Tensor, nn

from fedhaw.clients.algorithm import ClientAlgorithm, ClientResult, ClientRound, Trained, Vectors
from fedhaw.clients.optimiser import Optimiser
from fedhaw.clients.randomness import client_generator
from fedhaw.clients.update import LocalUpdate
from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.layout import Layout
from fedhaw.models.stack import Stack


@dataclass(frozen=True)
class Block:
    """Clients `first` to `last` (exclusive) take samples `start` to `stop` of their order."""

    first: int
    last: int
    start: int
    stop: int


def blocks(sizes: Sequence[int], batch: int, *, join_lone: bool = False) -> Iterator[Block]:
    """The blocks of one epoch, in order, for clients sorted by size, largest first.

    Args:
        sizes: how many samples each client holds.
        batch: samples a step.
        join_lone: see `fedhaw.models.batches`.
    """
    stops = [list(accumulate(batch_sizes(size, batch, join_lone=join_lone))) for size in sizes]
    active = len(sizes)
    for step in range(len(stops[0]) if stops else 0):
        while len(stops[active - 1]) <= step:
            active -= 1
        first = 0
        for stop, group in groupby(own[step] for own in stops[:active]):
            last = first + len(list(group))
            yield Block(first, last, step * batch, stop)
            first = last


class CohortTrainer:
    """A trainer of cohorts, whose clients are trained side by side.

    Args:
        module: the model's template.
        layout: how it lies in the flat vector.
        algorithm: what a client does; a `stackable` one, which trains by `ClientRound.descend`.
        stack: how to compute with many models.
        x: (N, ...) the samples of all clients.
        y: (N,) their labels.
        seed: the run's; with the client and the round it fixes all randomness.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        algorithm: ClientAlgorithm,
        stack: Stack,
        x: Tensor,
        y: Tensor,
        seed: int,
    ) -> None:
        self._module, self._layout, self._algorithm = module, layout, algorithm
        self._stack, self._join_lone = stack, bool(batch_norms(module))
        self._x, self._y, self._seed = x, y, seed

    def __call__(
        self,
        round_index: int,
        clients: Sequence[int],
        rows: Sequence[Tensor],
        global_model: Tensor,
        down: Vectors,
        memory: Vectors,
    ) -> ClientResult:
        """The training of the clients, whose models all start from the global one.

        Args:
            round_index: which round this is.
            clients: A of them.
            rows: which samples each of them holds, (N_k,) in length, largest first.
            global_model: (P,) where they start.
            down: what came down beside it.
            memory: what the clients remember, a row for each.

        Returns:
            What the algorithm returned: in every array a row for each client, and for the loss
            (A,) float64 means over all samples visited.
        """
        given = ClientRound(
            clients=tuple(clients),
            round_index=round_index,
            global_model=global_model,
            down=down,
            memory=memory,
            generator=torch.Generator(),
            layout=self._layout,
            engine=lambda steps, linear: self._descend(
                steps, linear, round_index, clients, rows, global_model
            ),
            samples=lambda: (self._x[rows[0]], self._y[rows[0]]),
            template=self._module,
        )
        return self._algorithm.train(given)

    def _descend(
        self,
        settings: LocalUpdate,
        linear: Tensor | None,
        round_index: int,
        clients: Sequence[int],
        rows: Sequence[Tensor],
        global_model: Tensor,
    ) -> Trained:
        """The epochs of every client, from the global model."""
        models = global_model.repeat(len(clients), 1)
        self._stack.start(models)
        parameters, sizes = self._layout.parameters, [len(own) for own in rows]
        schedule = list(blocks(sizes, settings.batch, join_lone=self._join_lone))
        if linear is not None:
            linear = linear.expand(len(clients), parameters)
        steps = _Steps(settings, self._stack, models, parameters, linear)
        total = torch.zeros(len(clients), dtype=torch.float64, device=models.device)
        generators = [client_generator(self._seed, client, round_index) for client in clients]
        order = torch.zeros((len(clients), sizes[0]), dtype=torch.int64, device=models.device)
        for _ in range(settings.epochs):
            for k, (own, generator) in enumerate(zip(rows, generators, strict=True)):
                shuffled = torch.randperm(len(own), generator=generator).to(own.device)
                torch.index_select(own, 0, shuffled, out=order[k, : len(own)])
            for block in schedule:
                chosen = order[block.first : block.last, block.start : block.stop]
                flat = chosen.reshape(-1)
                x = self._x.index_select(0, flat).view(*chosen.shape, *self._x.shape[1:])
                y = self._y.index_select(0, flat).view(chosen.shape)
                total[block.first : block.last] += steps(block, x, y).sum(1)
        visited = torch.tensor(sizes, dtype=torch.float64, device=models.device) * settings.epochs
        batches = [batch_sizes(size, settings.batch, join_lone=self._join_lone) for size in sizes]
        return Trained(
            model=models,
            parameters=models[:, :parameters],
            loss=total / visited,
            steps=settings,
            counts=tuple(settings.epochs * len(own) for own in batches),
        )


class _Steps:
    """Steps of the update on blocks of rows, with fresh optimiser state."""

    def __init__(
        self,
        settings: LocalUpdate,
        stack: Stack,
        models: Tensor,
        parameters: int,
        linear: Tensor | None,
    ) -> None:
        self._settings, self._stack, self._linear = settings, stack, linear
        self._values = models[:, :parameters]
        self._made_for: tuple[int, int, int] | None = None
        if not settings.is_plain_sgd:
            values = self._values
            self._gradient = torch.empty_like(values, memory_format=torch.contiguous_format)
            # Every row still holds the global model.
            self._optimiser = Optimiser(settings, values, self._gradient, values[0].clone(), linear)

    def __call__(self, block: Block, x: Tensor, y: Tensor) -> Tensor:
        """The block's step; returns (A, m) numbers whose row sums are the losses."""
        rows = slice(block.first, block.last)
        shape = (block.first, block.last, block.stop - block.start)
        if shape != self._made_for:
            self._passes = self._stack.passes(rows, block.stop - block.start)
            self._made_for = shape
        if self._settings.is_plain_sgd:
            loss = self._passes.descend(x, y, self._settings.eta)
            if self._linear is not None:
                self._values[rows].add_(self._linear[rows], alpha=-self._settings.eta)
            return loss
        loss = self._passes.gradient(x, y, self._gradient[rows])
        self._optimiser.step(rows)
        return loss

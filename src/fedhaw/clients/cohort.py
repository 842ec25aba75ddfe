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
from torch import Tensor

from fedhaw.clients.optimiser import Optimiser
from fedhaw.clients.randomness import client_generator
from fedhaw.clients.update import LocalUpdate
from fedhaw.models.batches import batch_sizes
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
        stack: how to compute with many models.
        parameters: how many of a model's P numbers are trainable; they come first.
        join_lone: whether a lone last sample joins the batch before it.
        client_update: what a client does.
        x: (N, ...) the samples of all clients.
        y: (N,) their labels.
        seed: the run's; with the client and the round it fixes all randomness.
    """

    def __init__(
        self,
        stack: Stack,
        parameters: int,
        join_lone: bool,
        client_update: LocalUpdate,
        x: Tensor,
        y: Tensor,
        seed: int,
    ) -> None:
        self._stack, self._parameters, self._client_update = stack, parameters, client_update
        self._join_lone = join_lone
        self._x, self._y, self._seed = x, y, seed

    def __call__(
        self, round_index: int, clients: Sequence[int], rows: Sequence[Tensor], models: Tensor
    ) -> Tensor:
        """The training of the clients, whose models all start from the global one.

        Args:
            round_index: which round this is.
            clients: A of them.
            rows: which samples each of them holds, (N_k,) in length, largest first.
            models: (A, P) the global model in every row; becomes the clients' models.

        Returns:
            (A,) float64 mean loss over all samples each client visited.
        """
        self._stack.start(models)
        client_update = self._client_update.at(round_index)
        sizes = [len(own) for own in rows]
        schedule = list(blocks(sizes, client_update.batch, join_lone=self._join_lone))
        steps = _Steps(client_update, self._stack, models, self._parameters)
        total = torch.zeros(len(clients), dtype=torch.float64, device=models.device)
        generators = [client_generator(self._seed, client, round_index) for client in clients]
        order = torch.zeros((len(clients), sizes[0]), dtype=torch.int64, device=models.device)
        for _ in range(client_update.epochs):
            for k, (own, generator) in enumerate(zip(rows, generators, strict=True)):
                shuffled = torch.randperm(len(own), generator=generator).to(own.device)
                torch.index_select(own, 0, shuffled, out=order[k, : len(own)])
            for block in schedule:
                chosen = order[block.first : block.last, block.start : block.stop]
                flat = chosen.reshape(-1)
                x = self._x.index_select(0, flat).view(*chosen.shape, *self._x.shape[1:])
                y = self._y.index_select(0, flat).view(chosen.shape)
                total[block.first : block.last] += steps(block, x, y).sum(1)
        visited = (
            torch.tensor(sizes, dtype=torch.float64, device=models.device) * client_update.epochs
        )
        return total / visited


class _Steps:
    """Steps of the update on blocks of rows, with fresh optimiser state."""

    def __init__(
        self, client_update: LocalUpdate, stack: Stack, models: Tensor, parameters: int
    ) -> None:
        self._client_update, self._stack = client_update, stack
        self._made_for: tuple[int, int, int] | None = None
        if not client_update.is_plain_sgd:
            values = models[:, :parameters]
            self._gradient = torch.empty_like(values, memory_format=torch.contiguous_format)
            # Every row still holds the global model.
            self._optimiser = Optimiser(client_update, values, self._gradient, values[0].clone())

    def __call__(self, block: Block, x: Tensor, y: Tensor) -> Tensor:
        """The block's step; returns (A, m) numbers whose row sums are the losses."""
        rows = slice(block.first, block.last)
        shape = (block.first, block.last, block.stop - block.start)
        if shape != self._made_for:
            self._passes = self._stack.passes(rows, block.stop - block.start)
            self._made_for = shape
        if self._client_update.is_plain_sgd:
            return self._passes.descend(x, y, self._client_update.eta)
        loss = self._passes.gradient(x, y, self._gradient[rows])
        self._optimiser.step(rows)
        return loss

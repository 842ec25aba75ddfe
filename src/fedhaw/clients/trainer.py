"""Training one client at a time: the reference that every engine answers to."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fedhaw.clients.algorithm import ClientResult, ClientRound, Start, Trained, Vectors
from fedhaw.clients.optimiser import Optimiser
from fedhaw.clients.randomness import client_seed, seed_all_draws
from fedhaw.clients.registry import ClientUpdate, algorithm_of, steps_of
from fedhaw.clients.update import LocalUpdate
from fedhaw.models import Loss
from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.layout import Layout
from fedhaw.models.learner import Learner, learner

Step: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(samples, labels) of a batch -> a vector that sums to its loss; the model has moved."""

NOTHING: Vectors = MappingProxyType({})


class Trainer:
    """A trainer of any client, one after the other, in one workspace.

    A trainer always works in the same memory, wherever the models come from and go to: matrix
    products may round differently at differently aligned addresses.

    Args:
        module: the model's template; the trainer works on a copy.
        layout: how it lies in the flat vector.
        client_update: what a client does.
        x: (N, ...) the samples of all clients.
        y: (N,) their labels.
        seed: the run's; with the client and the round it fixes all randomness.
        device: where to compute.

    Attributes:
        layout: how the model lies in the flat vector.
        start: the algorithm's memories before the first round.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        client_update: ClientUpdate,
        x: Tensor,
        y: Tensor,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.layout = layout
        self._module, self._x, self._y, self._seed, self._device = module, x, y, seed, device
        self._algorithm = algorithm_of(client_update)
        self.start = self._algorithm.init(layout.parameters)
        self._join_lone = bool(batch_norms(module))
        self._loss: Loss | None = None
        steps = steps_of(client_update)
        if steps is not None:
            self._prepare(steps)

    def __call__(
        self,
        round_index: int,
        client: int,
        rows: Tensor,
        global_model: Tensor,
        down: Vectors = NOTHING,
        memory: Vectors = NOTHING,
    ) -> ClientResult:
        """The training of one client.

        Args:
            round_index: which round this is.
            client: whose turn it is.
            rows: (N_k,) which samples are the client's.
            global_model: (P,) where it starts.
            down: what came down beside it.
            memory: what the client remembers.

        Returns:
            What the algorithm returned, its loss a number. The model may be a window that the next
            call writes over.
        """
        seed = client_seed(self._seed, client, round_index)
        seed_all_draws(seed, self._device)
        generator = torch.Generator().manual_seed(seed)
        given = ClientRound(
            clients=(client,),
            round_index=round_index,
            global_model=global_model.to(self._device),
            # Copies: an algorithm that writes to them harms neither other clients nor the files.
            down={name: vector.to(self._device, copy=True) for name, vector in down.items()},
            memory={name: vector.to(self._device, copy=True) for name, vector in memory.items()},
            generator=generator,
            layout=self.layout,
            engine=lambda steps, linear: self._descend(
                steps, linear, rows, global_model, generator
            ),
            samples=lambda: (self._x[rows], self._y[rows]),
            template=self._module,
        )
        result = self._algorithm.train(given)
        if type(self._algorithm) is LocalUpdate:
            return result
        check_result(result, self.start, global_model)
        return replace(result, loss=_as_loss(result.loss))

    def _prepare(self, steps: LocalUpdate) -> None:
        """A workspace for these steps' loss and batches, unless there is one."""
        largest = min(steps.batch + self._join_lone, len(self._x))
        if self._loss is not steps.loss:
            self._learner: Learner = learner(self._module, self.layout, steps.loss, self._device)
            self._loss = steps.loss
            self._batch = self._x.new_empty((0, *self._x.shape[1:]))
        if len(self._batch) < largest:
            self._batch = self._x.new_empty((largest, *self._x.shape[1:]))

    def _descend(
        self,
        steps: LocalUpdate,
        linear: Tensor | None,
        rows: Tensor,
        global_model: Tensor,
        generator: torch.Generator,
    ) -> Trained:
        """The epochs of these steps, from the global model."""
        self._prepare(steps)
        model = self._learner
        model.start(global_model)
        step = _step(steps, model, linear)
        losses: list[Tensor] = []
        sizes = batch_sizes(len(rows), steps.batch, join_lone=self._join_lone)
        for _ in range(steps.epochs):
            # Not by brackets: they take twice as long, and a small model's visit is short.
            drawn = torch.randperm(len(rows), generator=generator).to(rows.device)
            order = torch.index_select(rows, 0, drawn)
            labels = torch.split_with_sizes(torch.index_select(self._y, 0, order), sizes)
            for chosen, y in zip(torch.split_with_sizes(order, sizes), labels, strict=True):
                x = torch.index_select(self._x, 0, chosen, out=self._batch[: len(y)])
                losses.append(step(x, y))
        joined = losses[0] if len(losses) == 1 else torch.cat(losses)
        total = float(joined.sum(dtype=torch.float64))
        trained = model.model()
        return Trained(
            model=trained,
            parameters=trained[: self.layout.parameters],
            loss=total / (steps.epochs * len(rows)),
            steps=steps,
            counts=(steps.epochs * len(sizes),),
        )


def check_result(result: ClientResult, start: Start, global_model: Tensor) -> None:
    """A check of what an algorithm's `train` returned."""
    if not isinstance(result, ClientResult):
        raise TypeError(f"train returned a {type(result).__name__}; return a ClientResult")
    _check_vectors("model", {"": result.model}, {"": global_model})
    _check_vectors("up", result.up, start.up)
    _check_vectors("memory", result.memory, start.client)


def _check_vectors(what: str, found: Mapping[str, object], declared: Vectors) -> None:
    if found.keys() != declared.keys():
        raise TypeError(f"{what} has {_names(found)}, but init declares {_names(declared)}")
    for name, example in declared.items():
        value, label = found[name], f"{what}[{name!r}]" if name else what
        if not isinstance(value, Tensor):
            raise TypeError(f"{label} is a {type(value).__name__}, not a tensor")
        if value.shape != example.shape or value.dtype != example.dtype:
            raise TypeError(
                f"{label} is {value.dtype} of shape {tuple(value.shape)}, not {example.dtype} of "
                f"shape {tuple(example.shape)}"
            )


def _names(vectors: Mapping[str, object]) -> str:
    return ", ".join(map(repr, vectors)) or "nothing"


def _as_loss(returned: object) -> float:
    try:
        return float(returned.detach() if isinstance(returned, Tensor) else returned)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        what = "None" if returned is None else f"a {type(returned).__name__}"
        raise TypeError(
            f"the client function returned {what}, not its mean training loss; end it with "
            "`return loss`"
        ) from error


def _step(steps: LocalUpdate, model: Learner, linear: Tensor | None) -> Step:
    """The steps, with fresh optimiser state, for a model that has just started."""
    if linear is not None:
        linear = model.arranged(linear)
    if steps.is_plain_sgd:
        if linear is None:
            return lambda x, y: model.descend(x, y, steps.eta)

        def descend(x: Tensor, y: Tensor) -> Tensor:
            loss = model.descend(x, y, steps.eta)
            model.parameters.add_(linear, alpha=-steps.eta)
            return loss

        return descend

    one, start = slice(0, 1), model.parameters.clone()
    optimiser = Optimiser(
        steps,
        model.parameters.unsqueeze(0),
        model.gradient.unsqueeze(0),
        anchor=start,
        linear=None if linear is None else linear.unsqueeze(0),
    )

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = model.backward(x, y)
        optimiser.step(one)
        return loss

    return step

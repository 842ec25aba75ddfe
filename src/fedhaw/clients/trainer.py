"""Training one client at a time: the reference that every engine answers to."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fedhaw.clients.optimiser import Optimiser
from fedhaw.clients.randomness import client_seed
from fedhaw.clients.update import ClientFunction, ClientUpdate, LocalUpdate
from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.flat import FlatModule
from fedhaw.models.layout import Layout
from fedhaw.models.learner import Learner, learner

Step: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(samples, labels) of a batch -> a vector that sums to its loss; the model has moved."""


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
        self._seed = seed
        self._train: Callable[[Tensor, Tensor, torch.Generator], float]
        self._model: Learner | _OwnFunction
        if isinstance(client_update, LocalUpdate):
            self._model = learner(module, layout, client_update.loss, device)
            self._train = _Epochs(client_update, self._model, bool(batch_norms(module)), x, y)
        else:
            self._train = self._model = _OwnFunction(client_update, module, layout, device, x, y)

    def __call__(
        self, round_index: int, client: int, rows: Tensor, global_model: Tensor
    ) -> tuple[float, Tensor]:
        """The training of one client.

        Args:
            round_index: which round this is.
            client: whose turn it is.
            rows: (N_k,) which samples are the client's.
            global_model: (P,) where it starts.

        Returns:
            The mean loss over all samples visited, and the (P,) model, a window that the next call
            writes over.
        """
        seed = client_seed(self._seed, client, round_index)
        torch.manual_seed(seed)  # for dropout and whatever else draws from the global generator
        generator = torch.Generator().manual_seed(seed)
        loss = self._train(rows, global_model, generator)
        return loss, self._model.model()


class _Epochs:
    """A `LocalUpdate` on one learner."""

    def __init__(
        self, client_update: LocalUpdate, model: Learner, join_lone: bool, x: Tensor, y: Tensor
    ) -> None:
        self._client_update, self._model, self._x, self._y = client_update, model, x, y
        self._join_lone = join_lone
        largest = min(client_update.batch + join_lone, len(x))
        self._batch = x.new_empty((largest, *x.shape[1:]))

    def __call__(self, rows: Tensor, global_model: Tensor, generator: torch.Generator) -> float:
        model, client_update = self._model, self._client_update
        model.start(global_model)
        step = _step(client_update, model)
        losses: list[Tensor] = []
        sizes = batch_sizes(len(rows), client_update.batch, join_lone=self._join_lone)
        for _ in range(client_update.epochs):
            order = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
            labels = torch.split(self._y[order], sizes)
            for chosen, y in zip(torch.split(order, sizes), labels, strict=True):
                x = torch.index_select(self._x, 0, chosen, out=self._batch[: len(y)])
                losses.append(step(x, y))
        total = float(torch.cat(losses).sum(dtype=torch.float64))
        return total / (client_update.epochs * len(rows))


class _OwnFunction:
    """A user's own function, each time on a module that nobody has touched.

    A function may leave anything in its module: hooks, attributes, frozen parameters. The next
    client must not find it, for who comes next depends on the workers.
    """

    def __init__(
        self,
        function: ClientFunction,
        module: nn.Module,
        layout: Layout,
        device: torch.device | str,
        x: Tensor,
        y: Tensor,
    ) -> None:
        self._function, self._module, self._layout = function, module, layout
        self._device, self._x, self._y = device, x, y
        self._trained = torch.empty(layout.size, device=device)

    def __call__(self, rows: Tensor, global_model: Tensor, generator: torch.Generator) -> float:
        flat = FlatModule(self._module, self._layout, self._device)
        flat.start(global_model)
        flat.module.train()
        loss = self._function(flat.module, self._x[rows], self._y[rows], generator)
        # The function may have given the module other tensors than the windows it found.
        self._trained.copy_(self._layout.flatten(flat.module))
        return _as_loss(loss)

    def model(self) -> Tensor:
        """(P,) what the last client made."""
        return self._trained


def _as_loss(returned: object) -> float:
    try:
        return float(returned.detach() if isinstance(returned, Tensor) else returned)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        what = "None" if returned is None else f"a {type(returned).__name__}"
        raise TypeError(
            f"the client function returned {what}, not its mean training loss; end it with "
            "`return loss`"
        ) from error


def _step(client_update: LocalUpdate, model: Learner) -> Step:
    """Steps of the update, with fresh optimiser state, for a model that has just started."""
    if client_update.is_plain_sgd:
        return lambda x, y: model.descend(x, y, client_update.eta)

    one, start = slice(0, 1), model.parameters.clone()
    optimiser = Optimiser(
        client_update, model.parameters.unsqueeze(0), model.gradient.unsqueeze(0), anchor=start
    )

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = model.backward(x, y)
        optimiser.step(one)
        return loss

    return step

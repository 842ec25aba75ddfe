"""Many models of one shape that learn side by side, as one batched model.

The counterpart of `Learner` for a matrix of models: plain perceptrons through their closed form
with batched matrix products, any other module through `torch.func.vmap`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedhaw.models.flat import prepared
from fedhaw.models.layout import Layout
from fedhaw.models.learner import Loss, closed_form_sizes
from fedhaw.models.perceptron import PerceptronPass

State: TypeAlias = dict[str, Tensor]


class StackPass(Protocol):
    """Passes through some models of a stack with a fixed number of samples for each."""

    def gradient(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """The gradient of each model, written to its row of `out`, (A, number of parameters).

        Args:
            x: (A, batch, ...) samples for each model.
            y: (A, batch) their labels.
            out: where the gradients go.

        Returns:
            (A, m) numbers whose sums over each row are the models' losses, summed over samples.
        """

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """One plain SGD step of every model; returns as `gradient` does."""


class Stack(Protocol):
    """A models in training."""

    def start(self, models: Tensor) -> None:
        """A new start with `models`, (A, P), which passes may change in place."""

    def passes(self, rows: slice, batch: int) -> StackPass:
        """Passes through these rows of the models with `batch` samples for each."""


def stack(module: nn.Module, layout: Layout, loss: Loss, device: torch.device) -> Stack:
    """The fastest stack there is for this module and loss."""
    sizes = closed_form_sizes(module, loss)
    if sizes is None:
        return ModuleStack(module, layout, loss, device)
    return PerceptronStack(sizes)


class PerceptronStack:
    """Plain perceptrons under cross-entropy, by their closed form."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes

    def start(self, models: Tensor) -> None:
        """The same as in `Stack`."""
        self._models = models

    def passes(self, rows: slice, batch: int) -> StackPass:
        """The same as in `Stack`."""
        return PerceptronPass(self._sizes, self._models[rows], batch)


class ModuleStack:
    """Any module that vmap can batch; one that draws random numbers (dropout) it cannot."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss, device: torch.device) -> None:
        self._module = prepared(module, layout).to(device).train()
        self._entries = layout.entries
        self._parameters = layout.parameters
        self._loss = loss
        travelling = {entry.name for entry in layout.entries}
        self._initial = {
            name: buffer.clone()
            for name, buffer in self._module.named_buffers()
            if name not in travelling
        }
        self.gradients = vmap(grad_and_value(self._one_loss, has_aux=True))

    def start(self, models: Tensor) -> None:
        """The same as in `Stack`."""
        self._values = models[:, : self._parameters]
        self._buffers = models[:, self._parameters :]
        # What does not travel, such as batch norm's counters, every model has for itself too.
        self._resident = {
            name: value.repeat(len(models), *[1] * value.ndim)
            for name, value in self._initial.items()
        }

    def passes(self, rows: slice, batch: int) -> StackPass:
        """The same as in `Stack`."""
        resident = {name: value[rows] for name, value in self._resident.items()}
        return _ModulePass(self.gradients, self._values[rows], self._buffers[rows], resident)

    def _one_loss(
        self, values: Tensor, buffers: Tensor, resident: State, x: Tensor, y: Tensor
    ) -> tuple[Tensor, tuple[Tensor, State]]:
        """The mean loss of one model, and what its buffers have become."""
        # Splitting the vector, rather than slicing it, makes its gradient one concatenation.
        lengths = [entry.stop - entry.start for entry in self._entries]
        count = sum(entry.stop <= self._parameters for entry in self._entries)
        pieces = list(torch.split(values, lengths[:count]))
        # Copies, each contiguous: batch norm's rule under vmap loses what it writes to windows.
        pieces += [piece.clone() for piece in torch.split(buffers, lengths[count:])]
        state = {
            entry.name: piece.view(entry.shape)
            for entry, piece in zip(self._entries, pieces, strict=True)
        }
        resident = {name: value.clone() for name, value in resident.items()}
        loss = self._loss(functional_call(self._module, {**state, **resident}, (x,)), y)
        left = [state[entry.name].detach().reshape(-1) for entry in self._entries[count:]]
        return loss, (torch.cat(left) if left else buffers, resident)


class _ModulePass:
    """Passes through some models of a `ModuleStack`."""

    def __init__(
        self, gradients: Callable[..., Any], values: Tensor, buffers: Tensor, resident: State
    ) -> None:
        self._gradients = gradients
        self._values, self._buffers, self._resident = values, buffers, resident

    def gradient(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """The same as in `StackPass`."""
        gradients, loss = self._backward(x, y)
        out.copy_(gradients)
        return loss

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """The same as in `StackPass`."""
        gradients, loss = self._backward(x, y)
        self._values.add_(gradients, alpha=-eta)
        return loss

    def _backward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gradients, (loss, (buffers, resident)) = self._gradients(
            self._values, self._buffers, self._resident, x, y
        )
        self._buffers.copy_(buffers)
        for name, value in resident.items():
            self._resident[name].copy_(value)
        return gradients, loss.unsqueeze(1) * y.shape[1]

"""Many models of one shape that learn side by side, as one batched model.

The counterpart of `Learner` for a matrix of models: plain perceptrons through their closed form
with batched matrix products, any other module through `torch.func.vmap`.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedhaw.models.flat import prepared
from fedhaw.models.layout import Layout
from fedhaw.models.learner import Loss, closed_form_sizes
from fedhaw.models.perceptron import PerceptronPass


class StackPass(Protocol):
    """Passes through some models of a stack with a fixed number of samples for each."""

    def gradient(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write each model's gradient to its row of `out`, (A, number of parameters).

        Args:
            x: (A, batch, ...) samples for each model.
            y: (A, batch) their labels.
            out: where the gradients go.

        Returns:
            (A,) each model's loss, summed over its samples.
        """

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """One plain SGD step of every model; returns as `gradient` does."""


class Stack(Protocol):
    """How to compute with (A, P) models."""

    def passes(self, models: Tensor, batch: int) -> StackPass:
        """Passes through these models, which they may change, with `batch` samples for each."""

    def start(self) -> None:
        """Forget what earlier rounds left behind."""


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

    def passes(self, models: Tensor, batch: int) -> StackPass:
        """See `Stack`."""
        return PerceptronPass(self._sizes, models, batch)

    def start(self) -> None:
        """Nothing is left behind."""


class ModuleStack:
    """Any module that vmap can batch; one that draws random numbers (dropout) it cannot."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss, device: torch.device) -> None:
        self._module = prepared(module, layout).to(device).train()
        self._entries = layout.entries
        self._parameters = layout.parameters
        self._loss = loss
        self._initial = {name: value.clone() for name, value in self._module.named_buffers()}
        self.gradients = vmap(grad_and_value(self._one_loss, has_aux=True))

    def passes(self, models: Tensor, batch: int) -> StackPass:
        """See `Stack`."""
        return _ModulePass(self, models[:, : self._parameters], models[:, self._parameters :])

    def start(self) -> None:
        """See `Stack`."""
        for name, buffer in self._module.named_buffers():
            buffer.copy_(self._initial[name])

    def _one_loss(
        self, parameters: Tensor, buffers: Tensor, x: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean loss of one model, and what its travelling buffers have become."""
        lengths = [entry.stop - entry.start for entry in self._entries]
        names = [entry.name for entry in self._entries]
        shapes = [entry.shape for entry in self._entries]
        count = sum(entry.stop <= self._parameters for entry in self._entries)
        # Splitting the vector, rather than slicing it, makes its gradient one concatenation.
        pieces = [
            *torch.split(parameters, lengths[:count]),
            *torch.split(buffers.clone(), lengths[count:]),
        ]
        state = {
            name: piece.view(shape)
            for name, piece, shape in zip(names, pieces, shapes, strict=True)
        }
        loss = self._loss(functional_call(self._module, state, (x,)), y)
        left = [state[name].detach().reshape(-1) for name in names[count:]]
        return loss, torch.cat(left) if left else buffers


class _ModulePass:
    """Passes through some models of a `ModuleStack`."""

    def __init__(self, stack: ModuleStack, parameters: Tensor, buffers: Tensor) -> None:
        self._gradients = stack.gradients
        self._parameters, self._buffers = parameters, buffers

    def gradient(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """See `StackPass`."""
        gradients, loss = self._backward(x, y)
        out.copy_(gradients)
        return loss

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """See `StackPass`."""
        gradients, loss = self._backward(x, y)
        self._parameters.add_(gradients, alpha=-eta)
        return loss

    def _backward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gradients, (loss, buffers) = self._gradients(self._parameters, self._buffers, x, y)
        self._buffers.copy_(buffers)
        return gradients, loss * y.shape[1]

"""One model that learns: it holds a flat vector and can take gradient steps on it.

Two of them, interchangeable: any module through autograd, and the perceptron through its closed
form. The second exists only for speed; tests hold it to the first.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.models.flat import FlatModule
from fedhaw.models.heap import keep_freed_memory
from fedhaw.models.layout import Layout
from fedhaw.models.perceptron import PerceptronPass, perceptron_sizes, transpose_first_layer

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(outputs, labels) -> mean loss of the batch, a scalar; such as cross-entropy."""

_ENGINE = torch.autograd.Variable._execution_engine


class Learner(Protocol):
    """A model in training.

    Attributes:
        parameters: (n,) what it learns, in an order of its own.
        gradient: (n,) where `backward` leaves the gradient, in the same order.
    """

    parameters: Tensor
    gradient: Tensor

    def start(self, model: Tensor) -> None:
        """A new start from `model`, (P,)."""

    def arranged(self, vector: Tensor) -> Tensor:
        """(n,) a vector that lies as a model does, in the order of `parameters`.

        It may be a window that the next call writes over.
        """

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of the batch's mean loss, left in `gradient`.

        Returns:
            A vector whose sum is the loss, summed over the samples; adding up can wait.
        """

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """One plain SGD step; `gradient` is undefined after it. Returns as `backward` does."""

    def model(self) -> Tensor:
        """(P,) the model as its layout lays it; a window that a later `start` writes over."""


def learner(
    module: nn.Module, layout: Layout, loss: Loss, device: torch.device | str = "cpu"
) -> Learner:
    """The fastest learner there is for this module and loss."""
    sizes = closed_form_sizes(module, loss)
    if sizes is None:
        return ModuleLearner(module, layout, loss, device)
    return PerceptronLearner(sizes, device)


def closed_form_sizes(module: nn.Module, loss: Loss) -> tuple[int, ...] | None:
    """A perceptron's sizes when its gradient under this loss is known in closed form."""
    return perceptron_sizes(module) if loss is cross_entropy else None


class ModuleLearner:
    """Any module, by autograd."""

    def __init__(
        self, module: nn.Module, layout: Layout, loss: Loss, device: torch.device | str = "cpu"
    ) -> None:
        keep_freed_memory()
        self._flat = FlatModule(module, layout, device)
        self._parts = tuple(self._flat.module.modules())
        self._loss = loss
        self.parameters = self._flat.vector[: layout.parameters]
        self.gradient = torch.zeros_like(self.parameters)
        named = dict(self._flat.module.named_parameters())
        entries = [entry for entry in layout.entries if entry.name in named]
        self._leaves = tuple(named[entry.name] for entry in entries)
        self._one = torch.ones((), device=device)
        self._values, self._gradients = (
            [vector[e.start : e.stop].view(e.shape) for e in entries]
            for vector in (self.parameters, self.gradient)
        )

    @property
    def module(self) -> nn.Module:
        """The module in training."""
        return self._flat.module

    def start(self, model: Tensor) -> None:
        """A new start from `model`, (P,), in training mode."""
        self._flat.start(model)
        if not all(part.training for part in self._parts):  # a look costs less than setting it
            self._flat.module.train()

    def arranged(self, vector: Tensor) -> Tensor:
        """The same as in `Learner`."""
        return vector

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        """The same as in `Learner`."""
        loss, gradients = self._differentiate(x, y)
        for place, gradient in zip(self._gradients, gradients, strict=True):
            place.zero_() if gradient is None else place.copy_(gradient)
        return loss

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """The same as in `Learner`."""
        loss, gradients = self._differentiate(x, y)
        moved = [(w, g) for w, g in zip(self._values, gradients, strict=True) if g is not None]
        torch._foreach_add_([w for w, _ in moved], [g for _, g in moved], alpha=-eta)
        return loss

    def _differentiate(self, x: Tensor, y: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The batch's loss, and its gradient; None for a parameter that took no part."""
        with torch.enable_grad():
            loss = self._loss(self._flat(x), y)
            # What `torch.autograd.grad(loss, leaves, allow_unused=True)` calls when it has looked
            # at its arguments: a twentieth of a perceptron's step. Not `backward`: it would add to
            # gradients that first have to be set to zero.
            gradients: Sequence[Tensor | None] = _ENGINE.run_backward(
                (loss,), (self._one,), False, False, self._leaves, True, accumulate_grad=False
            )
        return loss.detach().reshape(1) * len(y), gradients

    def model(self) -> Tensor:
        """The same as in `Learner`."""
        return self._flat.vector


class PerceptronLearner:
    """A plain perceptron under cross-entropy, by its closed form."""

    def __init__(self, sizes: tuple[int, ...], device: torch.device | str = "cpu") -> None:
        size = sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))
        self._sizes = sizes
        self.parameters = torch.zeros(size, device=device)
        self.gradient = torch.zeros(size, device=device)
        self._model = torch.zeros(size, device=device)
        self._arranged = torch.zeros(size, device=device)
        self._full: PerceptronPass | None = None

    def start(self, model: Tensor) -> None:
        """A new start from `model`, (P,)."""
        transpose_first_layer(self._sizes, model, out=self.parameters, back=False)

    def arranged(self, vector: Tensor) -> Tensor:
        """The same as in `Learner`."""
        transpose_first_layer(self._sizes, vector, out=self._arranged, back=False)
        return self._arranged

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        """The same as in `Learner`."""
        return self._pass(len(y)).gradient(x, y, self.gradient)

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """The same as in `Learner`."""
        return self._pass(len(y)).descend(x, y, eta)

    def model(self) -> Tensor:
        """The same as in `Learner`."""
        transpose_first_layer(self._sizes, self.parameters, out=self._model, back=True)
        return self._model

    def _pass(self, batch: int) -> PerceptronPass:
        """The places for a batch of this size; only those of the largest batch are kept."""
        if self._full is None or batch > self._full.batch:
            self._full = PerceptronPass(self._sizes, self.parameters, batch, transposed=True)
        if batch == self._full.batch:
            return self._full
        return PerceptronPass(self._sizes, self.parameters, batch, transposed=True)

"""The proxy loss: what FedLAW asks of a handful of samples that the server holds itself."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.layout import Layout
from fedhaw.models.learner import Loss, ModuleLearner, closed_form_sizes
from fedhaw.models.perceptron import PerceptronPass
from fedhaw.models.span import PerceptronSpan

ProxyBatch: TypeAlias = Callable[[Any], tuple[float, Any]]
"""(P,) flat model -> (mean loss, (P,) its gradient), both of the model's own array kind.

The gradient is a window that the next call, of any batch, writes over.
"""


def proxy_loss(
    module: nn.Module,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    batch: int = 64,
    layout: Layout | None = None,
) -> tuple[ProxyBatch, ...]:
    """The loss of a flat model on each minibatch of the proxy set, in fixed order.

    Batch norm normalises by the statistics of the minibatch; dropout is off.

    Args:
        module: the model's template.
        loss: the mean loss of a batch.
        x: (N, ...) proxy samples.
        y: (N,) their labels.
        batch: samples a minibatch; the last one may be smaller, see `fedhaw.models.batches`.
        layout: how flat models are laid out, default `Layout.of(module)`. Where buffers travel,
            the gradient is zero in their place.
    """
    layout = layout or Layout.of(module)
    cuts = batch_sizes(len(y), batch, join_lone=bool(batch_norms(module)))
    batches = zip(torch.split(x, cuts), torch.split(y, cuts), strict=True)
    sizes = closed_form_sizes(module, loss)
    if sizes is not None:
        model, gradient = torch.zeros(2, layout.size, device=x.device)
        return tuple(_PerceptronBatch(sizes, model, gradient, x, y) for x, y in batches)
    learner = ModuleLearner(module, layout, loss, x.device)
    # Where only parameters travel, the learner's own gradient is the window we hand out.
    travels = layout.size > layout.parameters
    gradient = torch.zeros(layout.size, device=x.device) if travels else learner.gradient
    return tuple(_module_loss(learner, gradient, x, y) for x, y in batches)


@dataclass(frozen=True, eq=False)
class _PerceptronBatch:
    """A minibatch for perceptrons, with a short way along weighted sums of them.

    Attributes:
        sizes: the perceptron's.
        model: (P,) room for the model.
        gradient: (P,) room for its gradient.
        x: the samples.
        y: their labels.
    """

    sizes: tuple[int, ...]
    model: Tensor
    gradient: Tensor
    x: Tensor
    y: Tensor

    def __call__(self, vector: Any) -> tuple[float, Any]:
        self.model.copy_(_as_tensor(vector))
        loss = float(self._pass.gradient(self.x, self.y, self.gradient).mean())
        return loss, _like(vector, self.gradient)

    @cached_property
    def _pass(self) -> PerceptronPass:
        return PerceptronPass(self.sizes, self.model, len(self.y))

    def among(self, models: Any) -> Callable[[Any], Tensor] | None:
        """The slopes along sums of (K, P) models; None where that is no shorter."""
        if len(self.sizes) == 2:
            return None
        return PerceptronSpan(self.sizes, _as_tensor(models).to(self.x), self.x, self.y).slopes


def _module_loss(learner: ModuleLearner, gradient: Tensor, x: Tensor, y: Tensor) -> ProxyBatch:
    def loss_and_gradient(vector: Any) -> tuple[float, Any]:
        learner.start(_as_tensor(vector))
        learner.module.eval()
        for norm in batch_norms(learner.module):
            norm.train()
        loss = float(learner.backward(x, y)) / len(y)
        if gradient is not learner.gradient:
            gradient[: len(learner.gradient)] = learner.gradient
        return loss, _like(vector, gradient)

    return loss_and_gradient


def _as_tensor(vector: Any) -> Tensor:
    return torch.from_numpy(vector) if isinstance(vector, np.ndarray) else vector


def _like(vector: Any, gradient: Tensor) -> Any:
    return gradient.numpy() if isinstance(vector, np.ndarray) else gradient

"""The proxy loss: what FedLAW asks of a handful of samples that the server holds itself."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fedhaw.models.flat import batch_norms
from fedhaw.models.layout import Layout
from fedhaw.models.learner import Learner, Loss, ModuleLearner, learner

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
        batch: samples a minibatch; the last one may be smaller.
        layout: how flat models are laid out, default `Layout.of(module)`. Where buffers travel,
            the gradient is zero in their place.
    """
    layout = layout or Layout.of(module)
    model = learner(module, layout, loss, x.device)
    # Where only parameters travel, the learner's own gradient is the window we hand out.
    travels = layout.size > layout.parameters
    gradient = torch.zeros(layout.size, device=x.device) if travels else model.gradient
    batches = zip(torch.split(x, batch), torch.split(y, batch), strict=True)
    return tuple(_batch_loss(model, gradient, samples, labels) for samples, labels in batches)


def _batch_loss(model: Learner, gradient: Tensor, x: Tensor, y: Tensor) -> ProxyBatch:
    def loss_and_gradient(vector: Any) -> tuple[float, Any]:
        numpy = isinstance(vector, np.ndarray)
        model.start(torch.from_numpy(vector) if numpy else vector)
        if isinstance(model, ModuleLearner):
            _use_batch_statistics(model.module)
        loss = float(model.backward(x, y)) / len(y)
        if gradient is not model.gradient:
            gradient[: len(model.gradient)] = model.gradient
        return loss, gradient.numpy() if numpy else gradient

    return loss_and_gradient


def _use_batch_statistics(module: nn.Module) -> None:
    module.eval()
    for norm in batch_norms(module):
        norm.train()

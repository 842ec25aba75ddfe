"""How good a model is on samples it was not trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.models.flat import FlatModule, batch_norms
from fedhaw.models.layout import EVALUATION_BATCH, Layout
from fedhaw.models.learner import Loss

LARGE_BATCH = 1000


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, and the share of samples whose largest logit is the right one."""

    loss: float
    accuracy: float


class Evaluator:
    """Evaluates flat models of one layout, again and again.

    Samples go through in large batches, except where the layout says that batch norm uses batch
    statistics: then in batches of 64, as in the letter, for there the batches are part of the
    result.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        loss: Loss = cross_entropy,
        device: torch.device | str = "cpu",
    ) -> None:
        self._flat = FlatModule(module, layout, device)
        self._loss = loss
        by_batch = layout.buffers == "batch" and bool(batch_norms(module))
        self._batch = EVALUATION_BATCH if by_batch else LARGE_BATCH

    def __call__(self, model: Tensor, x: Tensor, y: Tensor) -> Evaluation:
        """Evaluate `model`, (P,), on samples `x`, (N, ...), with labels `y`, (N,)."""
        self._flat.start(model)
        module, device = self._flat.module.eval(), self._flat.vector.device
        loss = torch.zeros((), dtype=torch.float64, device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        with torch.inference_mode():
            for first in range(0, len(y), self._batch):
                labels = y[first : first + self._batch].to(device)
                logits = module(x[first : first + self._batch].to(device))
                loss += self._loss(logits, labels) * len(labels)
                right += (logits.argmax(-1) == labels).sum()
        return Evaluation(float(loss) / len(y), int(right) / len(y))

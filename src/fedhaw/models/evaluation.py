"""How good a model is on samples it was not trained on."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.flat import FlatModule
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
    result, and a lone last sample joins the batch before it, see `fedhaw.models.batches`.
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
        self._by_batch = layout.buffers == "batch" and bool(batch_norms(module))

    def batches(self, samples: int) -> list[int]:
        """The sizes of the batches in which so many samples go through."""
        batch = EVALUATION_BATCH if self._by_batch else LARGE_BATCH
        return batch_sizes(samples, batch, join_lone=self._by_batch)

    def __call__(self, model: Tensor, x: Tensor, y: Tensor) -> Evaluation:
        """Evaluate `model`, (P,), on samples `x`, (N, ...), with labels `y`, (N,)."""
        self._flat.start(model)
        module, device = self._flat.module.eval(), self._flat.vector.device
        loss = torch.zeros((), dtype=torch.float64, device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        with torch.inference_mode():
            sizes = self.batches(len(y))
            for samples, own in zip(torch.split(x, sizes), torch.split(y, sizes), strict=True):
                labels = own.to(device)
                logits = module(samples.to(device))
                loss += self._loss(logits, labels) * len(labels)
                right += (logits.argmax(-1) == labels).sum()
        return Evaluation(float(loss) / len(y), int(right) / len(y))

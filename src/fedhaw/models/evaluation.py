"""How good a model is on samples it was not trained on.

Whatever is measured is a function of all the model's outputs and the right labels; accuracy and
loss are two of them, and a user may add others.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.errors import FedhawError, named
from fedhaw.models.batches import batch_norms, batch_sizes
from fedhaw.models.flat import FlatModule
from fedhaw.models.layout import EVALUATION_BATCH, Layout
from fedhaw.models.learner import Loss
from fedhaw.models.threads import one_thread
from fedhaw.rules.threads import share_out

LARGE_BATCH = 1000

COPIED_NUMBERS = 2**26
"""Numbers in all copies of the model that several threads need to evaluate it."""

EvaluationMetric: TypeAlias = Callable[[Tensor, Tensor], float | Tensor]
"""(outputs, labels) -> number, over all samples at once: (M, ...) and (M,)."""


class InvalidMetric(FedhawError, ValueError):
    """An evaluation metric that cannot be computed."""


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose largest logit is the right one."""
    return (outputs.argmax(-1) == labels).double().mean()


class Evaluator:
    """The evaluation of flat models of one layout, again and again.

    Samples go through in large batches, except where the layout says that batch norm uses batch
    statistics: then in batches of 64, as in the letter, for there the batches are part of the
    result, and a lone last sample joins the batch before it, see `fedhaw.models.batches`.

    Args:
        module: the model's template.
        layout: how it lies in the flat vector.
        loss: (outputs, labels) -> mean loss.
        device: where to compute.
        further: what is measured beside accuracy and loss, by name.
        threads: how many batches at a time, on a processor; each has one torch thread, so that the
            outputs do not depend on it.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        loss: Loss = cross_entropy,
        device: torch.device | str = "cpu",
        further: Mapping[str, EvaluationMetric] | None = None,
        threads: int = 1,
    ) -> None:
        self._flat = FlatModule(module, layout, device)
        # A module for each thread: a user's own may keep something while it computes.
        most = COPIED_NUMBERS // layout.size if self._flat.vector.device.type == "cpu" else 0
        self._others = [FlatModule(module, layout) for _ in range(min(threads - 1, most))]
        own = {name: _guarded(name, metric) for name, metric in (further or {}).items()}
        self._metrics: dict[str, EvaluationMetric] = {"accuracy": accuracy, "loss": loss, **own}
        self._by_batch = layout.buffers == "batch" and bool(batch_norms(module))

    def batches(self, samples: int) -> list[int]:
        """The sizes of the batches in which so many samples go through."""
        batch = EVALUATION_BATCH if self._by_batch else LARGE_BATCH
        return batch_sizes(samples, batch, join_lone=self._by_batch)

    def __call__(self, model: Tensor, x: Tensor, y: Tensor) -> dict[str, float]:
        """Every metric by name, of `model`, (P,), on samples `x`, (M, ...), with labels `y`, (M,).

        Raises:
            InvalidMetric: one of `further` failed, or gave no number.
        """
        with torch.inference_mode():
            outputs = self.outputs(model, x)
            labels = y.to(outputs.device)
            return {name: float(of(outputs, labels)) for name, of in self._metrics.items()}

    def accuracy(self, model: Tensor, x: Tensor, y: Tensor) -> float:
        """The accuracy alone."""
        outputs = self.outputs(model, x)
        return float(accuracy(outputs, y.to(outputs.device)))

    def outputs(self, model: Tensor, x: Tensor) -> Tensor:
        """(M, ...) what the model makes of the samples."""
        parts = torch.split(x, self.batches(len(x)))
        idle = [*self._others, self._flat][-len(parts) :]
        several = len(idle) > 1
        found: dict[int, Tensor] = {}
        waiting = iter(enumerate(parts))

        def work() -> None:
            flat = idle.pop()
            flat.start(model)
            flat.module.eval()
            with one_thread() if several else nullcontext(), torch.inference_mode():
                for number, part in waiting:
                    found[number] = flat(part.to(flat.vector.device))

        share_out(work, len(idle))
        with torch.inference_mode():
            return torch.cat([found[number] for number in range(len(parts))])


def _guarded(name: str, metric: EvaluationMetric) -> EvaluationMetric:
    """A user's metric whose every failure is one sentence."""

    def measured(outputs: Tensor, labels: Tensor) -> float:
        try:
            return float(metric(outputs, labels))
        except Exception as error:
            raise InvalidMetric(
                f"The evaluation metric {name!r} failed ({named(error)}); give a "
                "function of outputs, (M, ...), and labels, (M,), that returns one number."
            ) from error

    return measured

"""A module whose parameters are windows onto one flat vector.

Writing the vector writes the module and the other way round, so sending, receiving and updating a
model are single operations on P numbers, whatever the module looks like inside.
"""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedhaw.models.batches import batch_norms
from fedhaw.models.layout import Layout


class FlatModule:
    """A private copy of a module, laid over a vector.

    Attributes:
        module: the copy. Under the layout's choice ``"batch"`` its batch norms have no running
            statistics.
        vector: (P,) its parameters and travelling buffers.
    """

    def __init__(
        self, module: nn.Module, layout: Layout, device: torch.device | str = "cpu"
    ) -> None:
        self.layout = layout
        self.module = prepared(module, layout).to(device)
        self._channels_last = prefers_channels_last(module)
        self.vector = layout.flatten(self.module)
        self._laid = list(self._places())
        self._lay_over_the_vector()
        # What does not travel must not carry anything from one client to the next either.
        travelling = {entry.name for entry in layout.entries}
        self._resident = [b for n, b in self.module.named_buffers() if n not in travelling]
        self._initial = [buffer.clone() for buffer in self._resident]

    def start(self, model: Tensor) -> None:
        """A new start with `model`, (P,); all else that an earlier client left is forgotten."""
        self.vector.copy_(model)
        for buffer, value in zip(self._resident, self._initial, strict=True):
            buffer.copy_(value)
        self._lay_over_the_vector()

    def __call__(self, x: Tensor) -> Tensor:
        """What the module makes of samples, (B, ...)."""
        if self._channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        out: Tensor = self.module(x)
        return out

    def model(self) -> Tensor:
        """(P,) the present model, `vector`."""
        return self.vector

    def _places(self) -> Iterator[tuple[nn.Module, str, Tensor]]:
        """Each parameter and travelling buffer: its submodule, its name there, its window."""
        for path, window in self.layout.views(self.vector).items():
            owner, _, name = path.rpartition(".")
            yield self.module.get_submodule(owner), name, window

    def _lay_over_the_vector(self) -> None:
        """Parameters and travelling buffers, pointed at their places in the vector.

        Done anew for every client: a user's code may have put other tensors in their place.
        """
        for owner, name, window in self._laid:
            parameter = owner._parameters.get(name)
            if parameter is None:
                setattr(owner, name, window)
            else:
                parameter.data = window
                parameter.grad = None


def prefers_channels_last(module: nn.Module) -> bool:
    """Whether images should come to the module with their channels innermost in memory.

    Narrow convolutions are a third faster so. But a module's own code may ask for the usual order,
    by `x.view(len(x), -1)` for one; so only torch's parts and ours are trusted, and whoever wrote
    another one says so the usual way, by ``module.to(memory_format=torch.channels_last)``.
    """
    weights = [part.weight for part in module.modules() if isinstance(part, nn.Conv2d)]
    authors = {type(part).__module__.partition(".")[0] for part in module.modules()}
    # A weight of one channel or one pixel lies in both orders.
    asked_for = not all(weight.is_contiguous() for weight in weights) and all(
        weight.is_contiguous(memory_format=torch.channels_last) for weight in weights
    )
    return bool(weights) and (authors <= {"torch", "fedhaw"} or asked_for)


def prepared(module: nn.Module, layout: Layout) -> nn.Module:
    """A copy of the module that treats batch norm as the layout says."""
    module = copy.deepcopy(module)
    if layout.buffers == "batch":
        for norm in batch_norms(module):
            # Without running statistics torch normalises by the batch in either mode.
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return module

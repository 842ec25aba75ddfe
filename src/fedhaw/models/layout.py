"""How a module lies in one flat float32 vector.

Everything that travels between server and clients is such a vector: first every trainable
parameter, submodule by submodule in the module's own order (weight and bias of a layer side by
side), then, if they travel at all, the float buffers in the same order.

What happens to buffers, in practice the running statistics of batch norm, is one choice:

- ``"batch"`` (the letter): parameters only. Running statistics do not exist; batch norm normalises
  by the statistics of the batch at hand, in training and in evaluation, there with batches of 64.
- ``"average"``: float buffers travel behind the parameters and the server averages them with the
  weights that its rule gives the clients, whatever the rule does to parameters; evaluation uses
  them. Integer buffers, such as batch norm's counter, stay out: every client starts each round with
  the template's.

Frozen parameters (``requires_grad=False``) never change, so they stay out too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from fedhaw.errors import FedhawError

Buffers: TypeAlias = Literal["batch", "average"]
"""What batch norm uses in an evaluation: the batch's statistics, or averaged running ones."""

EVALUATION_BATCH = 64
"""Batch size of the letter's evaluation, which matters where batch statistics are used."""


class UnsupportedModule(FedhawError, ValueError):
    """A module that cannot be laid out, trained or batched the way it was asked for."""


@dataclass(frozen=True)
class Entry:
    """One parameter or buffer: its name in the module, its shape, and where it lies."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """Where each parameter and travelling buffer of a module lies in the flat vector.

    Attributes:
        entries: parameters first, then buffers, in the order of the vector.
        parameters: how many of the P numbers are trainable parameters; they come first.
        layers: one slice per submodule with parameters of its own, then one per submodule with
            travelling buffers of its own; together they cover the vector without gaps.
        buffers: the choice described above.
    """

    entries: tuple[Entry, ...]
    parameters: int
    layers: tuple[slice, ...]
    buffers: Buffers

    @classmethod
    def of(cls, module: nn.Module, buffers: Buffers = "batch") -> Self:
        """The layout of a module.

        Raises:
            UnsupportedModule: the module has no trainable parameters, or numbers that are not
                float32.
        """
        if buffers not in ("batch", "average"):
            raise UnsupportedModule(
                f'buffers is {buffers!r}; choose "batch" (parameters only, batch statistics) or '
                '"average" (running statistics travel and are averaged).'
            )
        entries: list[Entry] = []
        layers: list[slice] = []
        groups = list(_travelling(module, buffers=False))
        parameters = sum(tensor.numel() for group in groups for _, tensor in group)
        if not parameters:
            raise UnsupportedModule(
                f"{type(module).__name__} has no trainable parameters; there is nothing to learn."
            )
        if buffers == "average":
            groups += list(_travelling(module, buffers=True))
        end = 0
        for group in groups:
            first = end
            for name, tensor in group:
                if tensor.dtype != torch.float32:
                    raise UnsupportedModule(
                        f"{name} of {type(module).__name__} is {tensor.dtype}; models are float32: "
                        "convert it with module.float()."
                    )
                entries.append(Entry(name, tuple(tensor.shape), end, end + tensor.numel()))
                end += tensor.numel()
            layers.append(slice(first, end))
        return cls(tuple(entries), parameters, tuple(layers), buffers)

    @property
    def size(self) -> int:
        """P, the length of the vector."""
        return self.entries[-1].stop

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Each entry's values as a view into `vector`, (P,), or a view a row of (K, P)."""
        rows = vector.shape[:-1]
        return {
            entry.name: vector[..., entry.start : entry.stop].view(*rows, *entry.shape)
            for entry in self.entries
        }

    def flatten(self, module: nn.Module) -> Tensor:
        """(P,) a copy of the module's present values."""
        tensors = _named_tensors(module)
        with torch.no_grad():
            return torch.cat([tensors[entry.name].reshape(-1) for entry in self.entries])

    def load(self, module: nn.Module, vector: Tensor) -> None:
        """A copy of the values of `vector`, (P,), into the module."""
        tensors = _named_tensors(module)
        with torch.no_grad():
            for name, values in self.views(vector).items():
                tensors[name].copy_(values)


def _named_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


Group: TypeAlias = list[tuple[str, Tensor]]


def _travelling(module: nn.Module, buffers: bool) -> Iterator[Group]:
    """Trainable parameters, or float buffers, by submodule; one that several share counts once."""
    seen: set[int] = set()
    for path, submodule in module.named_modules():
        group: Group = []
        own = submodule.named_buffers if buffers else submodule.named_parameters
        for name, tensor in own(prefix=path, recurse=False):
            if isinstance(tensor, nn.parameter.UninitializedParameter):
                raise UnsupportedModule(
                    f"{name} of {type(module).__name__} has no shape yet; run one batch through "
                    "a lazy module before using it."
                )
            travels = tensor.is_floating_point() if buffers else tensor.requires_grad
            if travels and id(tensor) not in seen and tensor.numel():
                seen.add(id(tensor))
                group.append((name, tensor))
        if group:
            yield group

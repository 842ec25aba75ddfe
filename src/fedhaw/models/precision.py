"""In which precision a module computes.

Under bfloat16 the matrix products and convolutions, forward and backward, take their inputs rounded
to 8 bits of mantissa, which processors and GPUs that know the format do about twice as fast. The
parameters stay float32, and so do their gradients, the optimiser's steps, sums over samples, and
everything the server does (Micikevicius et al. (2018), "Mixed Precision Training").
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def in_bfloat16(module: nn.Module) -> nn.Module:
    """A copy of the module that computes in bfloat16; its parameters keep their names."""
    module = copy.deepcopy(module)
    # In place of its own: a module around it would change every name, and hide what it is.
    vars(module)["forward"] = _InBfloat16(module.forward)
    return module


@dataclass(frozen=True)
class _InBfloat16:
    """A module's forward pass in bfloat16, with outputs in float32."""

    forward: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            out = self.forward(x)
        return out.float()

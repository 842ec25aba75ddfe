"""How samples are cut into batches, by everybody: clients, evaluation and proxy loss.

The last batch is smaller than the others if need be. Only where batch norm normalises by the batch
at hand, a lone last sample joins the batch before it, because one sample has no variance. Models
without batch norm keep it as a batch of one.
"""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_sizes(samples: int, batch: int, *, join_lone: bool) -> list[int]:
    """How many samples each batch holds.

    Args:
        samples: how many there are in all.
        batch: how many a batch holds, but for the last one.
        join_lone: whether a lone last sample joins the batch before it; where every batch is of
            one sample there is nothing it could mend.
    """
    full, rest = divmod(samples, batch)
    sizes = [batch] * full
    if rest == 1 and full and batch > 1 and join_lone:
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """The module's batch norms, of any dimension."""
    return [norm for norm in module.modules() if isinstance(norm, _BatchNorm)]

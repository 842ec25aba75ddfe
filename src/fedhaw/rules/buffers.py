"""Running statistics, which travel behind the parameters and are averaged, not learnt.

Running means and variances are no part of what gradient descent moves: a rule that took their
changes for gradients, or scaled a variance by exp(gamma), would be wrong. So a rule sees the
parameters only, and the statistics are averaged with the weights that it has just given the
clients.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedhaw.rules.base import Array, Client, InvalidRound, State, Vector, namespace
from fedhaw.rules.blocks import quietly
from fedhaw.rules.passes import astype, is_finite, like


@quietly
def averaged_buffers(
    buffers: Array, state: State, clients: Sequence[Client], num_examples: ArrayLike
) -> Array:
    """(B,) the clients' buffers, averaged with the rule's weights.

    Args:
        buffers: (K, B) the clients' own; of a lost client, the global model's.
        state: the rule's, after the round.
        clients: K names.
        num_examples: (K,) the weights in place of those of a rule that has none for these clients.
    """
    # Float64 and weights of 0 or more: the mean of variances is never below 0.
    wide = astype(buffers, namespace(buffers).float64)
    mean = like(wide, _weights(state, clients, num_examples)) @ wide
    if not is_finite(mean):
        raise InvalidRound("A client's running statistics are not finite; count it as lost.")
    return astype(mean, buffers.dtype)


def _weights(state: State, clients: Sequence[Client], num_examples: ArrayLike) -> Vector:
    """(K,) 0 or more, summing to 1; by examples where the state has none that are of use."""
    weights = np.asarray(getattr(state, "weights", ()), dtype=np.float64)
    named = tuple(getattr(state, "clients", ())) == tuple(clients)
    usable = named and weights.shape == (len(clients),) and bool((weights >= 0).all())
    if not usable or not 0 < weights.sum() < np.inf:
        weights = np.asarray(num_examples, dtype=np.float64)
    normalised: Vector = weights / weights.sum()
    return normalised

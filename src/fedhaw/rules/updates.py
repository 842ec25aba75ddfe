"""What the clients of a round changed, and who of them has a say in it."""

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.base import Array, Round, Vector
from fedhaw.rules.guards import checked
from fedhaw.rules.passes import combine_updates


def mean_update(current: Round, weights: Vector) -> Array:
    """(P,) sum_k weights_k (w_k - w), in memory of its own; a lost upload adds nothing.

    Args:
        current: the round.
        weights: (K,) of the clients.

    Raises:
        InvalidClientModel: a client's model is not finite, whatever its weight.
    """
    mean = combine_updates(weights, current.global_model, current.client_models)
    return checked(mean, current)


def voters(current: Round) -> NDArray[np.bool_]:
    """(K,) the clients whose upload arrived and who have data to speak for.

    Rules that count heads ask only these: neither a lost upload nor a client without data is an
    opinion.
    """
    asked: NDArray[np.bool_] = current.received & (current.shares > 0)
    return asked


def equal_weights(who: NDArray[np.bool_]) -> Vector:
    """(K,) 1/n for each of the n clients marked, 0 for the others."""
    weights: Vector = who / np.count_nonzero(who)
    return weights

"""FedLAW's proxy loss for apps of any framework, in terms of named arrays.

FedLAW asks for the loss and gradient at a flat vector. An app knows its model as named arrays:

    def loss(arrays):                    # {"fc.weight": (10, 784), ...}
        ...
        return value, gradients          # by the same names

    rule = fedhaw.FedLAW(array_proxy(initial_arrays, loss))

Models of fedhaw's own take `fedhaw.models.proxy_loss`, which is faster.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedhaw.flower.layout import STATISTICS, WireLayout
from fedhaw.rules import ProxyLoss

NamedArrays: TypeAlias = Mapping[str, NDArray[Any]]
ArrayLoss: TypeAlias = Callable[[NamedArrays], tuple[float, NamedArrays]]
"""Takes the floating-point arrays that are learnt, so no running statistics: let batch norm take
the minibatch's own. Gives the loss and its gradient by array; arrays that the loss does not depend
on may be left out of the gradient."""


def array_proxy(
    arrays: ArrayRecord, loss: ArrayLoss, statistics: Sequence[str] = STATISTICS
) -> ProxyLoss:
    """`loss` as a function of the flat vector that the strategy makes of `arrays`.

    Args:
        arrays: the initial arrays, or any record of the same names and shapes.
        loss: of named arrays, on one minibatch of the server's own samples.
        statistics: as for the strategy.
    """
    layout = WireLayout.of(arrays, statistics=statistics)
    learnt = [piece for piece in layout.floats if piece.stop <= layout.learnt]

    def flat(vector: Any) -> tuple[float, NDArray[Any]]:
        named = {p.name: vector[p.start : p.stop].reshape(p.shape) for p in learnt}
        value, gradients = loss(named)
        gradient = np.zeros(layout.learnt, layout.dtype)
        for piece in learnt:
            if piece.name in gradients:
                gradient[piece.start : piece.stop] = np.asarray(gradients[piece.name]).reshape(-1)
        return float(value), gradient

    return flat

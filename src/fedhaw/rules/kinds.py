"""What rules compute with: arrays of any backend, coefficients, names of clients."""

from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any
"""A NumPy array or a torch tensor; the array API has no common type to name."""

Vector: TypeAlias = NDArray[np.float64]
"""Coefficients: one float64 per client, always in NumPy."""

Client: TypeAlias = Hashable
"""A client's name. Coefficients follow the name, never the position in a round."""

Metrics: TypeAlias = Mapping[str, float | Vector | Mapping[Client, float]]
"""What a rule learnt in a round: a number, or a few, or one for each client, by name. Nothing
between a rule and the page that draws them knows these names."""


Needs: TypeAlias = Literal["sum", "clients"]
"""What a rule has to see: only the weighted sum of the updates, or each client's."""


def namespace(*arrays: Array) -> Any:
    """The array API of the arrays' backend.

    NumPy's own functions are its array API; asking for them by type saves a few microseconds a
    call, which small models notice.
    """
    for array in arrays:
        if not isinstance(array, np.ndarray):
            return array_api_compat.array_namespace(*arrays)
    return np

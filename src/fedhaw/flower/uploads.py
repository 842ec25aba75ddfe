"""A round's models with all that a rule asks about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from fedhaw.flower.replies import Contribution


@dataclass(frozen=True, eq=False)
class Uploads:
    """A round as the rule wants it.

    Attributes:
        clients: K names in order; lost clients are among them if their weight is known.
        models: (K, P) their models, a lost one's row holding the global model.
        examples: (K,) their numbers of samples.
        received: (K,) False where the upload was lost.
        late: (K,) True where it came late.
        absurd: (K,) True where it was refused for its length.
        contributions: of the clients that answered, by name.
        rest: the whole-number arrays of their models.
        population: how many clients are known.
    """

    clients: tuple[str, ...]
    models: NDArray[Any]
    examples: NDArray[np.float64]
    received: NDArray[np.bool_]
    late: NDArray[np.bool_]
    absurd: NDArray[np.bool_]
    contributions: Mapping[str, Contribution]
    rest: Mapping[str, dict[str, Array]]
    population: int

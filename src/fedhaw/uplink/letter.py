"""The letter's uplink."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhaw.listing import listed
from fedhaw.uplink.base import LOSSES, PROBABILITIES, Lost, check_probability, uniforms


@dataclass(frozen=True)
class LetterUplink:
    """The letter's erroneous uplink.

    Client k's loss probability is p_k ~ Uniform(0, p_e), drawn once; each round's loss is an
    independent draw with that probability.

    Attributes:
        p_e: the largest loss probability a client may have, 0 to 1.
    """

    p_e: float

    def __post_init__(self) -> None:
        check_probability("p_e", self.p_e)

    def probabilities(self, seed: int, clients: Sequence[int]) -> NDArray[np.float64]:
        """(len(clients),) the loss probabilities p_k."""
        return self.p_e * uniforms(seed, PROBABILITIES, 0, clients)

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        draws = uniforms(seed, LOSSES, round_index, clients)
        return draws < self.probabilities(seed, clients)


@listed(__name__, "letter", "independently")
def letter(loss_rate: float) -> LetterUplink | None:
    """The uplink by its name; None is one that never fails."""
    return LetterUplink(loss_rate) if loss_rate else None

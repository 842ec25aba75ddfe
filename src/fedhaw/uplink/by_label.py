"""Losses tied to what a client alone knows, after Gu et al. (2021)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedhaw.listing import listed
from fedhaw.uplink.base import LOSSES, InvalidUplink, Lost, check_probability, uniforms


@dataclass(frozen=True)
class LabelUplink:
    """An uplink that is the worse, the smaller the smallest label is that a client holds.

    A client whose smallest label is j of C classes loses with probability loss_rate (1 - j/(C-1)),
    independently in each round: those who hold the first class lose with loss_rate, and what is
    missing is always the same kind of knowledge. In the paper's words, clients are available with
    p_min + j/(C-1) (p_max - p_min), where p_min is 1 - loss_rate and p_max is 1.

    Attributes:
        smallest: (K,) the smallest label of each client.
        classes: C.
        loss_rate: the largest loss probability, 0 to 1.
    """

    smallest: tuple[int, ...]
    classes: int
    loss_rate: float

    def __post_init__(self) -> None:
        check_probability("loss_rate", self.loss_rate)
        if not all(0 <= label < self.classes for label in self.smallest):
            raise InvalidUplink(
                f"smallest holds labels outside of 0 to {self.classes - 1}; give each client's "
                "smallest label, and how many classes there are."
            )

    @classmethod
    def of(cls, labels: NDArray[np.int64], loss_rate: float) -> Self:
        """From (K, C) how many samples of each class each client holds."""
        smallest = np.where(labels.any(axis=1), (labels > 0).argmax(axis=1), labels.shape[1] - 1)
        return cls(tuple(smallest.tolist()), labels.shape[1], loss_rate)

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> Lost:
        """The same as in `Uplink`."""
        if max(clients, default=0) >= len(self.smallest):
            raise InvalidUplink(
                f"smallest has {len(self.smallest)} clients, but client {max(clients)} takes part; "
                "give the smallest label of every client."
            )
        labels = np.array(self.smallest, dtype=float)[np.asarray(clients, dtype=np.int64)]
        probability = self.loss_rate * (1 - labels / max(self.classes - 1, 1))
        return uniforms(seed, LOSSES, round_index, clients) < probability


@listed(__name__, "by-label", "most where a client holds the first class")
def by_label(
    loss_rate: float, labels: Callable[[], NDArray[np.int64]] | None
) -> LabelUplink | None:
    """The uplink by its name; None is one that never fails."""
    if not loss_rate:
        return None
    if labels is None:
        raise InvalidUplink("The uplink by-label needs the clients' labels; give labels.")
    return LabelUplink.of(labels(), loss_rate)

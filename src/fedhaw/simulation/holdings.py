"""Who holds which samples, as engines use it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedhaw.simulation.errors import InvalidSimulation


@dataclass(frozen=True, eq=False)
class Holdings:
    """The clients' samples by their indices.

    Attributes:
        rows: (sum of N_k,) the indices, one client after the other.
        offsets: (K + 1,) where each client's indices begin.
    """

    rows: Tensor
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.integer]], device: torch.device) -> Self:
        """The holdings of K clients, given each one's indices."""
        rows = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        sizes = [len(part) for part in parts]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return cls(torch.from_numpy(rows).to(device), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(K,) how many samples each client holds."""
        return np.diff(self.offsets)

    def size(self, client: int) -> int:
        """N_k, how many samples the client holds."""
        return int(self.offsets[client + 1] - self.offsets[client])

    def rows_of(self, client: int) -> Tensor:
        """(N_k,) which samples the client holds."""
        begin, end = self.offsets[client : client + 2].tolist()  # torch is slow with numpy's own
        return self.rows[begin:end]

    def check(self, cohort: Sequence[int]) -> None:
        """A check of a cohort: clients that do not exist or stand in it twice are refused."""
        unknown = [client for client in cohort if not 0 <= client < len(self)]
        if unknown:
            raise InvalidSimulation(
                f"The cohort names client {unknown[0]}, but the clients are 0 to {len(self) - 1}."
            )
        if len(set(cohort)) != len(cohort):
            raise InvalidSimulation("A client stands twice in the cohort; name each one once.")

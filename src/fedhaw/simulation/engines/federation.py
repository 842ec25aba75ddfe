"""What every engine is made of: a model, what clients do with it, and who holds which samples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.clients import ClientUpdate
from fedhaw.errors import FedhawError
from fedhaw.models import Layout
from fedhaw.models.flat import prepared
from fedhaw.models.layout import EVALUATION_BATCH


class InvalidFederation(FedhawError, ValueError):
    """Parts of a federation that do not fit together."""


@dataclass(frozen=True, eq=False)
class Federation:
    """A federation's unchanging parts.

    Attributes:
        module: the model's template.
        layout: how it lies in the flat vector.
        update: what a client does.
        x: (N, ...) all samples.
        y: (N,) all labels.
        rows: (sum of N_k,) the clients' sample indices, one client after the other.
        offsets: (K + 1,) where each client's indices begin.
        seed: of all the clients' randomness.
        device: where to compute.
    """

    module: nn.Module
    layout: Layout
    update: ClientUpdate
    x: Tensor
    y: Tensor
    rows: Tensor
    offsets: NDArray[np.int64]
    seed: int
    device: torch.device

    @classmethod
    def of(
        cls,
        module: nn.Module,
        layout: Layout,
        update: ClientUpdate,
        x: Tensor,
        y: Tensor,
        parts: Sequence[NDArray[np.integer]],
        seed: int,
        device: torch.device | str = "cpu",
    ) -> "Federation":
        """Check the parts and put them together; samples are neither copied nor moved on a CPU."""
        if len(x) != len(y):
            raise InvalidFederation(f"There are {len(x)} samples but {len(y)} labels.")
        sizes = [len(part) for part in parts]
        rows = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(x)):
            raise InvalidFederation(
                f"The clients' sample indices run from {rows.min()} to {rows.max()}, but there are "
                f"only {len(x)} samples."
            )
        place = torch.device(device)
        federation = cls(
            module=module,
            layout=layout,
            update=update,
            x=x.contiguous().to(place),
            y=y.contiguous().to(place),
            rows=torch.from_numpy(rows).to(place),
            offsets=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
            seed=seed,
            device=place,
        )
        federation._try_a_batch()
        return federation

    def size(self, client: int) -> int:
        """N_k, how many samples the client holds."""
        return int(self.offsets[client + 1] - self.offsets[client])

    def rows_of(self, client: int) -> Tensor:
        """(N_k,) which samples the client holds."""
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    def check(self, cohort: Sequence[int]) -> None:
        """Refuse a cohort with clients that do not exist or stand in it twice."""
        clients = len(self.offsets) - 1
        strangers = [client for client in cohort if not 0 <= client < clients]
        if strangers:
            raise InvalidFederation(
                f"The cohort names client {strangers[0]}, but the clients are 0 to {clients - 1}."
            )
        if len(set(cohort)) != len(cohort):
            raise InvalidFederation("A client stands twice in the cohort; name each one once.")

    def _try_a_batch(self) -> None:
        """Let a module that cannot take these samples fail here, not in every client."""
        if not len(self.x):
            return
        module = prepared(self.module, self.layout).to(self.device).eval()
        try:
            with torch.no_grad(), one_thread():
                module(self.x[:EVALUATION_BATCH])
        except Exception as error:
            raise InvalidFederation(
                f"{type(self.module).__name__} cannot take samples of shape "
                f"{tuple(self.x.shape[1:])}: {str(error).splitlines()[0]}"
            ) from error


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread, so that sums are formed in one order on any machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

"""In a few words: why a client has no model this round."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedhaw.errors import named, words_of
from fedhaw.loss_reasons import NO_SAMPLES, NOT_FINITE, OUT_OF_MEMORY, exception, exception_class


def reason(error: BaseException) -> str:
    """What to say of an exception that a client's training raised."""
    full = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return (
        OUT_OF_MEMORY
        if full or "allocate memory" in words_of(error, 10_000)
        else exception(named(error))
    )


def same_exception(failures: Sequence[str | None]) -> str | None:
    """What every client with samples failed of, where that is one kind of exception."""
    of_clients = [failure for failure in failures if failure != NO_SAMPLES]
    kinds = {exception_class(failure) for failure in of_clients}
    return of_clients[0] if len(kinds) == 1 and None not in kinds else None


def unusable(loss: float, *sent: Tensor) -> str | None:
    """Why a trained model, and what is sent up beside it, must not be used; None when it may."""
    return None if math.isfinite(loss) and all(map(_all_finite, sent)) else NOT_FINITE


def _all_finite(vector: Tensor) -> bool:
    """Whether every number is finite: so if their sum is, and that is a tenth of the work."""
    return math.isfinite(vector.sum()) or bool(vector.isfinite().all())

"""In a few words: why a client has no model this round."""

import math
from collections.abc import Iterable, Sequence

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


def inspected(
    global_model: Tensor, model: Tensor, parameters: int, loss: float, beside: Iterable[Tensor]
) -> tuple[float, str | None]:
    """The length of a client's update, |w_k - w|, and why it must not be used, or None.

    Args:
        global_model: (P,) w.
        model: (P,) w_k, while both are in cache.
        parameters: how many of the P numbers are trainable; they come first.
        loss: of the training.
        beside: what is sent up beside the model.
    """
    length = float(torch.dist(model[:parameters], global_model[:parameters]))
    # A length that is finite is made of finite numbers; one that is not may be just too long.
    known = parameters if math.isfinite(length) else 0
    unknown = [model[known:], *beside] if known < len(model) else beside
    sound = math.isfinite(loss) and all(map(_all_finite, unknown))
    return length, None if sound else NOT_FINITE


def _all_finite(vector: Tensor) -> bool:
    """Whether every number is finite: so if their sum is, and that is a tenth of the work."""
    return math.isfinite(vector.sum()) or bool(vector.isfinite().all())

"""In a few words: why a client has no model this round."""

import math

import torch
from torch import Tensor

NOT_FINITE = "not finite"
NO_DATA = "no samples"


def reason(error: Exception) -> str:
    """What to say of an exception that a client's training raised."""
    text = str(error).strip()
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        return "out of memory"
    first_line = text.splitlines()[0] if text else ""
    return f"exception: {type(error).__name__}: {first_line}".rstrip(": ")


def unusable(loss: float, model: Tensor) -> str | None:
    """Why a trained (P,) model must not be used; None when it may."""
    return None if math.isfinite(loss) and bool(model.isfinite().all()) else NOT_FINITE

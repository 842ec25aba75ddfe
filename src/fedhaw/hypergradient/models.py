"""A round as a formula of torch sees it."""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedhaw.rules.base import Array, Round, Vector
from fedhaw.rules.passes import like, summing_to_one, to_numpy

HALF = (torch.float16, torch.bfloat16)


class Models(NamedTuple):
    """What a formula is made of; tensors of one dtype on one device.

    Attributes:
        w: (P,) the global model that was sent out.
        W: (K, P) the client models; a lost upload's row holds w.
        shares: (K,) each client's share of the data, N_k / N.
        layers: where each layer lies in the vector; None if the round did not say.
    """

    w: Tensor
    W: Tensor
    shares: Tensor
    layers: tuple[slice, ...] | None


def models_of(current: Round) -> Models:
    """The round's models, not copied unless they are of half precision, which becomes float32."""
    return assembled(current.global_model, current.client_models, current.shares, current, None)


def assembled(
    w: Array, W: Array, shares: Vector, current: Round, reference: Tensor | None
) -> Models:
    """`w` (P,), `W` (K, P) and `shares` (K,) with the round's layers, where `reference` lives."""
    models = tensor(W, reference)
    return Models(
        w=tensor(w, models), W=models, shares=summing_to_one(shares, models), layers=current.layers
    )


def tensor(array: Array, reference: Tensor | None) -> Tensor:
    """`array` as a tensor, in the dtype and on the device of `reference` if there is one."""
    own: Tensor = _from_numpy(array) if isinstance(array, np.ndarray) else array
    if reference is not None:
        return own.to(device=reference.device, dtype=reference.dtype)
    return own.float() if own.dtype in HALF else own


def back(model: Tensor, original: Array) -> Array:
    """(P,) a copy of `model` as an array of the kind and dtype of `original`."""
    if isinstance(original, np.ndarray):
        return np.array(to_numpy(model), dtype=original.dtype)
    return model.detach().to(dtype=original.dtype, copy=True)


def _from_numpy(array: np.ndarray) -> Tensor:
    if array.dtype.kind != "f":  # ml_dtypes' bfloat16, of a state that was saved
        halved: Tensor = like(torch.empty(0), array, keep_dtype=True)
        return halved
    try:
        with warnings.catch_warnings():
            # That torch could write into a read-only array does not matter: nobody does.
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array)
    except (TypeError, ValueError):  # of a byte order, precision or direction torch does not know
        return torch.from_numpy(np.array(array, dtype=np.float64))

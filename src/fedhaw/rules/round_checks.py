"""The checks of a round, one part each; whatever is wrong gets a sentence."""

import math
from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.rules.errors import InvalidClientModel, InvalidRound
from fedhaw.rules.kinds import Array, Client, Vector, namespace


def stacked(w: Array, models: Sequence[Array], clients: Sequence[Client] | None) -> Array:
    """(K, P) a list of models as one matrix."""
    if not models:
        raise InvalidRound("The round has no clients; skip a round nobody was asked in.")
    for model in (w, *models):
        _require_array("Each of client_models", model)
    names = clients if clients is not None else range(len(models))
    shape = tuple(w.shape)
    wrong = [
        name for name, model in zip(names, models, strict=False) if tuple(model.shape) != shape
    ]
    if wrong:
        raise InvalidClientModel(wrong, f"does not have the global model's shape {shape}")
    try:
        return namespace(*models).stack(list(models))
    except (TypeError, RuntimeError) as error:
        raise InvalidRound(
            f"client_models cannot be stacked ({error}); give arrays of one kind and dtype."
        ) from error


def detached(model: Array) -> Array:
    """The model without its history, which would keep every round before it alive."""
    if isinstance(model, np.ndarray) or not array_api_compat.is_torch_array(model):
        return model
    return model.detach()


def check_models(w: Array, W: Array) -> tuple[int, int]:
    """P and K, once the models fit together."""
    _require_array("global_model", w)
    _require_array("client_models", W)
    try:
        xp = namespace(w, W)
    except TypeError as error:
        raise InvalidRound(
            "global_model and client_models must be arrays of one kind, NumPy or torch; got "
            f"{type(w).__name__} and {type(W).__name__}."
        ) from error
    if w.ndim != 1:
        raise InvalidRound(
            f"global_model must be one flat vector; got shape {tuple(w.shape)}: flatten it."
        )
    if W.ndim != 2 or W.shape[1] != w.shape[0]:
        raise InvalidRound(
            f"client_models must have shape (K, {w.shape[0]}) to match global_model; got "
            f"{tuple(W.shape)}."
        )
    if W.shape[0] == 0 or W.shape[1] == 0:
        raise InvalidRound(
            "The round has no clients; skip a round nobody was asked in."
            if W.shape[0] == 0
            else "The models have no parameters; there is nothing to aggregate."
        )
    if not _is_real_floating(xp, W.dtype) or W.dtype != w.dtype:
        raise InvalidRound(
            "global_model and client_models must share one floating dtype; got "
            f"{w.dtype} and {W.dtype}: convert them before aggregating."
        )
    return int(W.shape[1]), int(W.shape[0])


def checked_names(clients: Sequence[Client] | None, K: int) -> tuple[Client, ...]:
    """K distinct names, by default 0..K-1."""
    try:
        names = tuple(range(K)) if clients is None else tuple(clients)
        distinct = len(set(names))
    except TypeError as error:
        raise InvalidRound(
            f"clients must be a sequence of hashable names ({error}); use texts or numbers."
        ) from error
    if len(names) != K:
        raise InvalidRound(f"clients names {len(names)} clients but client_models has {K}.")
    if distinct != K:
        twice = sorted({repr(name) for name in names if names.count(name) > 1})
        raise InvalidRound(
            f"Client names must be distinct; {', '.join(twice)} stands twice in the round."
        )
    return names


def checked_examples(num_examples: ArrayLike, names: tuple[Client, ...]) -> Vector:
    """(K,) the numbers of samples, each finite and not all 0."""
    K = len(names)
    try:
        examples = np.asarray(num_examples, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRound(f"num_examples must hold a number for each client ({error}).") from error
    if examples.shape != (K,):
        raise InvalidRound(
            f"num_examples must hold one number for each of the {K} clients; got shape "
            f"{examples.shape}."
        )
    for name, number in zip(names, examples.tolist(), strict=True):
        if not 0 <= number < math.inf:  # NaN fails both
            raise InvalidRound(
                f"num_examples of client {name!r} is {number:g}; it must be a finite number, "
                "0 or more."
            )
    if not np.count_nonzero(examples):
        raise InvalidRound("num_examples is 0 for every client; nobody has data to weigh.")
    return examples


def checked_mask(what: str, given: ArrayLike | None, K: int, default: bool) -> NDArray[np.bool_]:
    """(K,) one of a round's masks over its clients."""
    if given is None:
        return np.array([default] * K)
    mask = np.array(given)  # a copy: rules remember it
    if mask.shape != (K,) or mask.dtype != np.bool_:
        raise InvalidRound(
            f"{what} must hold one bool for each of the {K} clients; got {mask.dtype} "
            f"of shape {mask.shape}."
        )
    return mask


def checked_layers(layers: Sequence[slice], P: int) -> tuple[slice, ...]:
    """The layers, which cover the P numbers in order without gaps."""
    whole = isinstance(layers, Sequence) and all(
        isinstance(layer, slice) and isinstance(layer.stop, int) for layer in layers
    )
    edges = [0, *(layer.stop for layer in layers)] if whole else [0]
    in_order = whole and all(
        layer.start == edge and layer.stop > edge and layer.step in (None, 1)
        for layer, edge in zip(layers, edges, strict=False)
    )
    if not in_order or edges[-1] != P:
        raise InvalidRound(
            "layers must be slices that cover the model in order without gaps, "
            f"[slice(0, a), slice(a, b), ..., slice(y, {P})]."
        )
    return tuple(layers)


def _require_array(what: str, value: object) -> None:
    if not isinstance(value, np.ndarray) and not array_api_compat.is_array_api_obj(value):
        raise InvalidRound(
            f"{what} must be an array, NumPy or torch; got {type(value).__name__}: convert it."
        )


def _is_real_floating(xp: Any, dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        # NumPy's isdtype is slow, and stumbles over types of extensions such as bfloat16.
        return issubclass(dtype.type, np.floating)
    return bool(xp.isdtype(dtype, "real floating"))

"""Splits as files, to hand a federation's exact clients to someone else.

An .npz holds a split as two arrays, `indices` and `offsets`: client k has
indices[offsets[k]:offsets[k+1]]. One file may hold several splits under prefixes, say
`alpha01_indices` and `alpha01_offsets`, and the two parts of a test set, `proxy_test_indices` and
`eval_test_indices`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.data.archives import read_npz
from fedhaw.data.errors import DataError
from fedhaw.data.partitions import Indices
from fedhaw.files import replacing


def write_partition(path: Path | str, parts: Sequence[Indices]) -> None:
    """A split, written as `indices` and `offsets`.

    Raises:
        FileWriteError: the file could not be written; what stood there is untouched.
    """
    offsets = np.cumsum([0, *map(len, parts)])
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, indices=np.concatenate(parts), offsets=offsets)


def read_partition(
    path: Path | str, split: str | None = None, samples: int | None = None
) -> list[Indices]:
    """The split in a file.

    Args:
        path: the .npz file.
        split: which of several splits, by its prefix, such as "alpha01".
        samples: how many training samples there are, to check the indices against.

    Returns:
        One array of sample indices per client.

    Raises:
        DataError: the file cannot be read, has no such split, or the split is not one: indices
            that repeat, lie outside the data, or a client without any.
    """
    path = Path(path)
    arrays = read_npz(path)
    prefix = f"{split}_" if split else ""
    if f"{prefix}indices" not in arrays or f"{prefix}offsets" not in arrays:
        splits = sorted(key.removesuffix("_offsets") for key in arrays if key.endswith("_offsets"))
        raise DataError(
            f"{path} has no arrays {prefix}indices and {prefix}offsets; "
            f"the named splits in it are: {', '.join(splits) or 'none'}."
        )
    indices = _indices(arrays[f"{prefix}indices"], path, samples)
    offsets = arrays[f"{prefix}offsets"]
    fits = (
        offsets.ndim == 1
        and offsets.dtype.kind in "iu"
        and len(offsets) >= 2
        and offsets[0] == 0
        and offsets[-1] == len(indices)
        and bool((np.diff(offsets.astype(np.int64)) > 0).all())
    )
    if not fits:
        raise DataError(
            f"{prefix}offsets in {path} must rise from 0 to the {len(indices)} indices there are, "
            "a client between any two; write the split again."
        )
    return np.split(indices, offsets[1:-1])


def read_proxy_split(
    path: Path | str, samples: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The proxy and evaluation parts of a test set, read from a file.

    Args:
        path: the .npz file.
        samples: how many test samples there are, to check the indices against.

    Raises:
        DataError: the file cannot be read or lacks them, or the parts overlap or do not fit.
    """
    path = Path(path)
    keys = ("proxy_test_indices", "eval_test_indices")
    arrays = read_npz(path, keys)
    if missing := [key for key in keys if key not in arrays]:
        raise DataError(f"{path} lacks {' and '.join(missing)}; choose another file.")
    both = _indices(np.concatenate([arrays[key].ravel() for key in keys]), path, samples)
    proxy = arrays[keys[0]].size
    return both[:proxy], both[proxy:]


def _indices(array: NDArray[np.generic], path: Path, samples: int | None) -> Indices:
    """The indices, checked: whole numbers within the data, and none comes twice."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) == 0:
        raise DataError(
            f"{path} holds {array.dtype} of shape {array.shape} as indices, not a list."
        )
    indices = array.astype(np.int64)
    if indices.min() < 0 or (samples is not None and indices.max() >= samples):
        raise DataError(
            f"Indices in {path} run from {indices.min()} to {indices.max()}, but there are "
            f"{'any number of' if samples is None else samples} samples, counted from 0; "
            "is the file for another data set?"
        )
    if len(np.unique(indices)) != len(indices):
        raise DataError(f"A sample comes twice in the split of {path}; each has one holder.")
    return indices

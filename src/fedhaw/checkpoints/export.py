"""The model of a checkpoint by its arrays' names, as other programs want it."""

import math
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.checkpoints.file import read
from fedhaw.checkpoints.parts import CheckpointError, DamagedCheckpoint
from fedhaw.files import replacing


def model_of(checkpoint: str | os.PathLike[str]) -> dict[str, NDArray[np.generic]]:
    """The arrays of the global model in a checkpoint, each in its shape and type, by name."""
    parts = read(checkpoint)
    model = parts.get("model")
    described = None if model is None else model.facts.get("arrays")
    if model is None or described is None:
        raise CheckpointError(
            f"{checkpoint} does not know the names of its model's arrays: it is no checkpoint of a "
            "run, or of an earlier version; let the run go on for a round, and export again."
        )
    whole = parts["rest"].arrays if "rest" in parts else {}
    vector, begin, arrays = model.arrays[""], 0, {}
    for name, dtype, shape in described:
        dimensions = tuple(map(int, re.findall(r"\d+", shape)))
        if name in whole:
            arrays[name] = whole[name]
            continue
        end = begin + math.prod(dimensions)
        if end > len(vector):
            raise DamagedCheckpoint(
                Path(checkpoint), ValueError("its arrays are longer than its model")
            )
        arrays[name] = vector[begin:end].reshape(dimensions).astype(np.dtype(dtype))
        begin = end
    return arrays


def export(checkpoint: str | os.PathLike[str], file: str | os.PathLike[str]) -> list[str]:
    """A safetensors file with the model of a checkpoint; the names of its arrays are returned.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        FileWriteError: the file cannot be written; what stood there is untouched.
    """
    from safetensors.numpy import save_file

    arrays = model_of(checkpoint)
    with replacing(file) as temporary:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(contiguous, temporary, metadata={"format": "np"})
    return list(arrays)

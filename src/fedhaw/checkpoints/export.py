"""The model of a checkpoint by its arrays' names, as other programs want it."""

import math
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.checkpoints.file import read
from fedhaw.checkpoints.parts import CheckpointError, DamagedCheckpoint
from fedhaw.files import FileWriteError, is_path, write_bytes


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
        FileWriteError: the file cannot be written, or is the run's own; what stood there is
            untouched.
    """
    from safetensors.numpy import save

    arrays = model_of(checkpoint)
    if is_path(file):  # what cannot be one is refused below
        _refuse_own(Path(checkpoint).resolve(), Path(file).resolve())
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(file, save(contiguous, metadata={"format": "np"}))
    return list(arrays)


def _refuse_own(checkpoint: Path, file: Path) -> None:
    """A check that a file is none that the checkpoint's run goes on from, or is told by."""
    among = checkpoint.parent
    simulated = among.name == "checkpoints"  # a Flower server keeps all of its files in one folder
    own = file.parent == among and (simulated or re.search(r"-\d{6,}\.safetensors$", file.name))
    run = among.parent if simulated else among
    told = file.parent == run and file.suffix != ".safetensors" and file.exists()
    if own or told or file == checkpoint:
        raise FileWriteError(
            f"{file} is a place for the run's own files, which would be lost; choose another."
        )

"""A federation as other processes receive it: a small message, and arrays that they can share.

Whoever carries the arrays from process to process may map them into memory instead of copying them.
"""

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedhaw.names import loaded_files
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.federation import Federation

SMALL = 2**12
"""Bytes up to which an array travels inside of the message."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A federation that is ready to travel.

    Attributes:
        message: everything but the arrays, pickled.
        arrays: the large arrays, each once.
    """

    message: bytes
    arrays: tuple[NDArray[np.generic], ...]

    @classmethod
    def of(cls, federation: Federation) -> "Packed":
        """A federation, packed, with its training samples as inputs."""
        here = federation.on(torch.device("cpu"))
        packer = _Packer()
        for own in loaded_files():  # another process could not import them
            cloudpickle.register_pickle_by_value(own)
        try:
            packer.dump(replace(here, samples=here.training_samples()))
        except Exception as error:
            raise InvalidSimulation(
                f"The federation cannot be sent to other processes ({error}); run one at a time, "
                "with --jobs 1."
            ) from error
        return cls(packer.message.getvalue(), tuple(packer.arrays.values()))


def unpacked(message: bytes, arrays: Sequence[NDArray[np.generic]]) -> Federation:
    """The federation of a message that one of our own processes packed a moment ago."""
    federation = _Unpacker(io.BytesIO(message), arrays).load()
    assert isinstance(federation, Federation)
    return federation


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler that leaves large arrays and tensors out, and says which stands where."""

    def __init__(self) -> None:
        self.message = io.BytesIO()
        super().__init__(self.message)
        self.arrays: dict[tuple[object, ...], NDArray[np.generic]] = {}

    def persistent_id(self, value: object) -> tuple[str, int, bool] | None:
        """Kind and number of an array that is left out; None for everything else."""
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        if not isinstance(array, np.ndarray) or array.dtype == object or array.nbytes <= SMALL:
            return None
        # Windows onto the same memory are one array.
        key = array.ctypes.data, array.shape, array.strides, array.dtype
        self.arrays.setdefault(key, array)
        return type(value).__name__, list(self.arrays).index(key), _learns(value)


class _Unpacker(pickle.Unpickler):
    """The reverse: arrays take their places again, over the memory they came in."""

    def __init__(self, message: io.BytesIO, arrays: Sequence[NDArray[np.generic]]) -> None:
        super().__init__(message)
        self._arrays = arrays

    def persistent_load(self, identity: tuple[str, int, bool]) -> object:
        """The array that was left out, as what it was."""
        kind, number, learns = identity
        array = self._arrays[number]
        if kind == "ndarray":
            return array
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        return nn.Parameter(tensor, learns) if kind == "Parameter" else tensor


def _learns(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad

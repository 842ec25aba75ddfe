"""What a checkpoint consists of, and what can be wrong with one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedhaw.errors import FedhawError


class Part(NamedTuple):
    """One thing that a run needs to go on.

    Attributes:
        arrays: NumPy arrays of any shape, by name. One that is called "" goes by its part's name.
        facts: the rest, as JSON.
    """

    arrays: Mapping[str, NDArray[np.generic]]
    facts: Mapping[str, Any]


Parts: TypeAlias = Mapping[str, Part]
"""A checkpoint: its parts by name; names have no dot."""


class CheckpointError(FedhawError, ValueError):
    """A checkpoint that cannot be used: damaged, of another run, rule or model, or too new."""


class DamagedCheckpoint(CheckpointError):
    """A file that is cut short, changed, or no checkpoint at all; an earlier one may be whole.

    Args:
        file: where it lies.
        reason: what is wrong with it, in a few words; kept as an attribute.
    """

    def __init__(self, file: Path, reason: object) -> None:
        self.reason = str(reason)
        super().__init__(
            f"{file} cannot be read as a fedhaw checkpoint ({reason}); it is damaged, truncated or "
            "foreign."
        )

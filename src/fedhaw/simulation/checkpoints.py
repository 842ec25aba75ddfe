"""Everything a run needs to go on, in one safetensors file every few rounds.

A file holds the global model, the rule's state, the stand-ins' memory and, as readable JSON in its
metadata, the round and the description of the run. It is written beside its name and renamed, so
there is never half a checkpoint; the last two are kept, and a checksum over everything tells when
one was damaged later.
"""

import json
import logging
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from fedhaw.errors import FedhawError
from fedhaw.files import replacing
from fedhaw.rules import Rule, State, pack_state, unpack_state
from fedhaw.rules.reductions import like

FORMAT = "fedhaw-checkpoint"
VERSION = 1
KEPT = 2

_NAME = re.compile(r"round-(\d{6,})\.safetensors")
_STATE, _LAST = "state.", "last."

logger = logging.getLogger(__name__)


class CheckpointError(FedhawError, ValueError):
    """Checkpoints that cannot be used: damaged, or of another run."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stood after a round.

    Attributes:
        round_index: the last finished round.
        model: (P,) float32, the global model after it.
        state: the rule's arrays, by name.
        state_description: the rest of the rule's state, as `pack_state` gives it.
        tensors: which of the state's arrays were torch tensors.
        last_models: what `LastModels.pack` gave; empty without such a memory.
        recent_lengths: what the guard on long updates remembers.
        config: the description of the run.
    """

    round_index: int
    model: NDArray[np.float32]
    state: Mapping[str, NDArray[Any]]
    state_description: str
    tensors: tuple[str, ...]
    last_models: Mapping[str, NDArray[Any]]
    recent_lengths: tuple[float, ...]
    config: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        round_index: int,
        model: Tensor,
        state: State,
        last_models: Mapping[str, NDArray[Any]],
        recent_lengths: tuple[float, ...],
        config: Mapping[str, Any],
    ) -> "Checkpoint":
        """Take a run's parts; nothing is copied where models live on the CPU."""
        if not is_dataclass(state):
            raise CheckpointError(
                f"The state of the rule, a {type(state).__name__}, is not a dataclass and cannot "
                "be stored; make it one, or run without out."
            )
        arrays, description = pack_state(state)
        values = {item.name: getattr(state, item.name) for item in fields(state)}
        return cls(
            round_index=round_index,
            model=model.cpu().numpy(),
            state=arrays,
            state_description=description,
            tensors=tuple(n for n, v in values.items() if array_api_compat.is_torch_array(v)),
            last_models=last_models,
            recent_lengths=recent_lengths,
            config=config,
        )

    def rule_state(self, rule: Rule[Any], reference: Tensor) -> Any:
        """The rule's state, its models as tensors of their own on the device of `reference`."""
        state = unpack_state(rule, dict(self.state), self.state_description)
        # Freshly allocated: where an array begins decides how its sums are vectorised, and a
        # resumed run must round exactly as one that went through.
        models = {n: like(reference, self.state[n], keep_dtype=True) for n in self.tensors}
        return replace(state, **{n: _placed(model, reference) for n, model in models.items()})


def _placed(values: Tensor, reference: Tensor) -> Tensor:
    """A copy of `values` that lies in memory as it did before: a round's matrix in wider rows."""
    if values.ndim != 2 or values.dtype != reference.dtype or values.shape[1] >= len(reference):
        return values.clone()
    rows, columns = values.shape
    return reference.new_empty((rows, len(reference)))[:, :columns].copy_(values)


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and drop all but the last two.

    Raises:
        FileWriteError: it cannot be written; those written before are untouched.
    """
    arrays = {"model": checkpoint.model}
    arrays |= {_STATE + name: array for name, array in checkpoint.state.items()}
    arrays |= {_LAST + name: array for name, array in checkpoint.last_models.items()}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    description: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "round": checkpoint.round_index,
        "config": checkpoint.config,
        "state": checkpoint.state_description,
        "tensors": checkpoint.tensors,
        "recent_lengths": checkpoint.recent_lengths,
    }
    description["checksum"] = _checksum(arrays, description)
    # One entry, because safetensors writes several in an order that changes from run to run.
    metadata = {FORMAT: json.dumps(description)}
    with replacing(folder / f"round-{checkpoint.round_index:06d}.safetensors") as temporary:
        try:
            save_file(arrays, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error
    for _, older in _stored(folder)[:-KEPT]:
        # One too many does no harm.
        with suppress(OSError):
            older.unlink()


def load_latest(folder: Path) -> Checkpoint | None:
    """The last checkpoint that is whole; None when there are none at all.

    Raises:
        CheckpointError: there are some, and every one is damaged.
    """
    stored = _stored(folder)
    damages = []
    for _, file in reversed(stored):
        try:
            return _load(file)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            damages.append(f"{file.name}: {error}")
            logger.warning("Checkpoint %s is damaged (%s); trying the one before.", file, error)
    if damages:
        raise CheckpointError(
            f"Every checkpoint in {folder} is damaged ({'; '.join(damages)}); start afresh with "
            "resume=False or in another folder."
        )
    return None


def clear(folder: Path) -> None:
    """Remove all checkpoints."""
    for _, file in _stored(folder):
        file.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed run left half-written."""
    for leftover in folder.glob(".round-*.tmp"):
        leftover.unlink(missing_ok=True)


def _stored(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in the folder, oldest round first."""
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(file.name), file) for file in folder.iterdir()]
    return sorted((int(match[1]), file) for match, file in matches if match)


def _load(file: Path) -> Checkpoint:
    with safe_open(file, framework="numpy") as content:
        metadata = content.metadata() or {}
        arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    if FORMAT not in metadata:
        raise CheckpointError("it is not a fedhaw checkpoint")
    description = json.loads(metadata[FORMAT])
    if description["version"] != VERSION:
        raise CheckpointError(f"its format {description['version']} is not {VERSION}")
    if description.pop("checksum", None) != _checksum(arrays, description):
        raise CheckpointError("its checksum does not match")
    return Checkpoint(
        round_index=description["round"],
        model=arrays["model"],
        state=_under(_STATE, arrays),
        state_description=description["state"],
        tensors=tuple(description["tensors"]),
        last_models=_under(_LAST, arrays),
        recent_lengths=tuple(description.get("recent_lengths", ())),
        config=description["config"],
    )


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}


def _checksum(arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> str:
    total = zlib.crc32(json.dumps(description, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return f"{total:08x}"

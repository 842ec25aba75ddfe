"""A run between two rounds, as a checkpoint and back."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import array_api_compat
import torch
from torch import Tensor

from fedhaw.checkpoints import Part, Parts
from fedhaw.models import Layout
from fedhaw.rules import LengthGuard, pack_state, unpack_state
from fedhaw.rules.passes import like
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.exchange import Exchange
from fedhaw.simulation.late_uploads import LateUploads
from fedhaw.simulation.loop import Loop, Progress
from fedhaw.simulation.stand_ins import LastModels


def snapshot(progress: Progress, config: Mapping[str, object], layout: Layout) -> dict[str, Part]:
    """Everything that a run needs to go on; nothing is copied where models live on the CPU."""
    state = pack_state(progress.state)
    values = {item.name: getattr(progress.state, item.name) for item in fields(progress.state)}
    run = {
        "round": progress.next_round - 1,
        "config": config,
        "tensors": [n for n, value in values.items() if array_api_compat.is_torch_array(value)],
    }
    last = {} if progress.last is None else progress.last.pack()
    model = progress.model.cpu().numpy()
    arrays = [[entry.name, str(model.dtype), str(entry.shape)] for entry in layout.entries]
    return {
        "run": Part({}, run),
        "model": Part({"": model}, {"arrays": arrays}),
        "state": state,
        "last": Part(last, {}),
        "guard": Part({}, progress.guard.facts),
        **({} if progress.exchange is None else progress.exchange.pack()),
        **({} if progress.late is None else {"late": progress.late.pack()}),
    }


def beginning(loop: Loop, parts: Parts | None, memories: Path | None) -> Progress:
    """Where to go on: after the round of a checkpoint, or at round 0 when there is none.

    Args:
        loop: what is run.
        parts: of the checkpoint.
        memories: the file for the clients' memories; None for one without a name.
    """
    federation = loop.federation
    exchange = Exchange.begin(federation, memories, parts)
    model = federation.initial_model.clone()
    last, guard = None, LengthGuard(federation.settings["length_limit"])
    if federation.settings["stand_in"] == "last":
        last = LastModels(federation.layout.size, federation.device)
    late = LateUploads.begin(federation)
    if late is not None and exchange is not None:
        raise InvalidSimulation(
            f"{type(federation.uplink).__name__} delays uploads, and these clients have a memory "
            "that would have to wait for them; choose an uplink that loses, or another client "
            "update."
        )
    if parts is None:
        return Progress(0, model, loop.rule.init(), last, guard, exchange, late)
    model.copy_(torch.from_numpy(parts["model"].arrays[""]))
    if last is not None:
        last.unpack(parts["last"].arrays)
    run, state = parts["run"].facts, parts["state"]
    # Freshly allocated: where an array begins decides how its sums are vectorised, and a resumed
    # run must round exactly as one that went through.
    tensors = {
        name: _placed(like(model, state.arrays[name], keep_dtype=True), model)
        for name in run["tensors"]
    }
    rule_state = replace(unpack_state(loop.rule, state), **tensors)
    guard = guard.going_on(parts["guard"].facts)
    if late is not None:
        late.unpack(parts["late"], model)
    return Progress(run["round"] + 1, model, rule_state, last, guard, exchange, late)


def _placed(values: Tensor, reference: Tensor) -> Tensor:
    """A copy of `values` that lies in memory as it did before: a round's matrix in wider rows."""
    if values.ndim != 2 or values.dtype != reference.dtype or values.shape[1] >= len(reference):
        return values.clone()
    rows, columns = values.shape
    return reference.new_empty((rows, len(reference)))[:, :columns].copy_(values)

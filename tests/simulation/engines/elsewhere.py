"""A device that is not there: tensors on it have shapes and no values, and mix with no others.

Run as a program, for torch can be given one such device a process, and keeps it: every case trains
and evaluates clients there and prints what came of it, `case: failures | where the outputs are`.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from fedhaw.models import Evaluator
from fedhaw.settings import fill
from fedhaw.simulation import Federation
from fedhaw.simulation.engines import TrainingRound, create

ATEN = torch.ops.aten
ELSEWHERE = "elsewhere"


def _dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What is copied to a device is there, and every single number is 1."""
    kwargs = kwargs or {}
    if func is ATEN._local_scalar_dense.default:
        return 1.0 if args[0].dtype.is_floating_point else True
    if func is ATEN._to_copy.default and kwargs.get("device") is not None:
        (moved,) = args
        kwargs = {"dtype": kwargs.get("dtype") or moved.dtype, "device": kwargs["device"]}
        func, args = ATEN.empty_strided.default, (moved.shape, moved.stride())
    return FakeTensorMode.__torch_dispatch__(mode, func, types, args, kwargs)


# Not a class statement: torch has no types for being subclassed here.
Elsewhere: Any = type("Elsewhere", (FakeTensorMode,), {"__torch_dispatch__": _dispatch})
"""Torch without values."""


class LeftBehind(nn.Module):
    """A module that forgets to move a tensor of its own: the mistake that must be noticed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(784, 10)
        self.scale = torch.ones(784)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.flatten(1) * self.scale)
        return out


CASES: dict[str, dict[str, object]] = {
    "mlp sgd": {"model": "mlp"},
    "mlp adam": {"model": "mlp", "client_update": "adam"},
    "mlp fedprox": {"model": "mlp", "client_update": "fedprox", "momentum": 0.9, "clip": 1.0},
    "cnn sgd": {"model": "cnn"},
    "resnet18 sgd-wd": {"model": "resnet18-4", "client_update": "sgd-wd"},
    "resnet18 average": {"model": "resnet18-4", "buffers": "average"},
    "left behind": {"model": LeftBehind()},
}


def main() -> None:
    _setup_privateuseone_for_python_backend(ELSEWHERE)
    on_this_machine = copy.deepcopy
    copy.deepcopy = _without_modes(on_this_machine)  # parameters that a device can take
    for name, given in CASES.items():
        federation = Federation.prepare(
            fill({**given, "train_samples": 200, "split": "iid"}, objects=True)
        )
        with Elsewhere(allow_non_fake_inputs=True):
            moved = federation.on(torch.device(ELSEWHERE))
            out = torch.empty(2, moved.layout.size, device=ELSEWHERE)
            reports = create(moved).train(
                TrainingRound(0, moved.initial_model, (0, 1), out.unbind())
            )
            failures = sorted({report.failure for report in reports if report.failure})
            try:
                evaluator = Evaluator(moved.module, moved.layout, device=ELSEWHERE)
                outputs = evaluator.outputs(moved.initial_model, moved.x_test["matched"][:70])
                where = outputs.device.type
            except Exception as error:
                where = str(error).splitlines()[0]
        print(f"{name}: {', '.join(failures)} | {where}", flush=True)


def _without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        with _disable_current_modes():
            return function(*args)

    return called


if __name__ == "__main__":
    main()

"""How fast one core trains convolutional clients, beside a plain loop and a floor.

    python benchmarks/convolutions.py
    python benchmarks/convolutions.py --models resnet18-8 cnn --steps 9

plain     module, cross-entropy, backward and torch.optim.SGD, as one writes it down
float32   a client's step here
bfloat16  the same with precision="bfloat16"
floor     the multiplications alone at the best rate of a large float32 matrix product

Images a second of processor time on one thread: whatever else the machine does costs little of it.
Contenders take turns, a step each; the fastest step counts.

The second table is where the time of a float32 step here goes, as torch's profiler has it. If all
but convolutions and products took no time, it would be so many times as fast as it is ("at most").
"""

import argparse
import time
from collections.abc import Callable
from math import prod

import torch
from record import Record
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from fedhaw.models import Layout, build
from fedhaw.models.flat import prepared
from fedhaw.models.learner import ModuleLearner
from fedhaw.models.precision import in_bfloat16

BATCHES = {"resnet18": 64, "resnet18-16": 64, "resnet18-8": 64, "cnn": 10}
SHAPE, CLASSES, ETA = (3, 32, 32), 10, 1e-3

OPERATIONS = {
    "convolution": ("mkldnn_convolution", "convolution"),
    "its gradient": ("convolution_backward",),
    "batch norm": ("batch_norm",),
    "its gradient ": ("batch_norm_backward",),
    "product": ("addmm", "mm"),
}
"""Kinds of operations and how the names of torch's own end."""


def plain_step(module: nn.Module, x: Tensor, y: Tensor) -> Callable[[], object]:
    """A step as one writes it down."""
    module = prepared(module, Layout.of(module)).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=ETA)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def our_step(module: nn.Module, x: Tensor, y: Tensor) -> Callable[[], object]:
    """A client's step of plain SGD."""
    layout = Layout.of(module)
    learner = ModuleLearner(module, layout, cross_entropy)
    learner.start(layout.flatten(module))
    return lambda: learner.descend(x, y, ETA)


def multiplications(module: nn.Module) -> int:
    """Of one image's training step: forward, to the weights, and to all inputs but the image."""
    counts: list[int] = []

    def count(part: nn.Module, _: object, out: Tensor) -> None:
        if isinstance(part, nn.Conv2d | nn.Linear):
            counts.append(prod(part.weight.shape) * prod(out.shape[2:]))

    hooks = [part.register_forward_hook(count) for part in module.modules()]
    module(torch.zeros(2, *SHAPE))
    for hook in hooks:
        hook.remove()
    return 3 * sum(counts) - counts[0]


def seconds(step: Callable[[], object]) -> float:
    begin = time.process_time()
    step()
    return time.process_time() - begin


def row(name: str, steps: int) -> tuple[str, ...]:
    torch.manual_seed(0)
    batch, module = BATCHES[name], build(name, SHAPE, CLASSES)
    x, y = torch.randn(batch, *SHAPE), torch.randint(CLASSES, (batch,))
    square = torch.randn(1024, 1024)
    contenders = {
        "plain": plain_step(module, x, y),
        "float32": our_step(module, x, y),
        "bfloat16": our_step(in_bfloat16(module), x, y),
        "product": lambda: square @ square,
    }
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(steps + 1):
        for contender, step in contenders.items():
            taken = seconds(step)
            if turn:  # the first is for caches and compiled primitives
                best[contender] = min(best[contender], taken)
    rate = {contender: batch / taken for contender, taken in best.items()}
    floor = 1024**3 / best["product"] / multiplications(module)
    return (
        f"{name}, batch {batch}",
        *(f"{rate[contender]:.0f}" for contender in ("plain", "float32", "bfloat16")),
        f"{rate['float32'] / rate['plain']:.2f}",
        f"{rate['bfloat16'] / rate['plain']:.2f}",
        f"{floor:.0f}",
        f"{rate['float32'] / floor:.0%}",
    )


def profile_row(name: str, steps: int) -> tuple[str, ...]:
    """Milliseconds of a float32 step by kind of operation."""
    torch.manual_seed(0)
    batch, module = BATCHES[name], build(name, SHAPE, CLASSES)
    step = our_step(module, torch.randn(batch, *SHAPE), torch.randint(CLASSES, (batch,)))
    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(steps):
            step()
    spent = dict.fromkeys([*OPERATIONS, "rest"], 0.0)
    for event in profiled.key_averages():
        kinds = [kind for kind, ends in OPERATIONS.items() if event.key.endswith(ends)]
        spent[kinds[0] if kinds else "rest"] += event.self_cpu_time_total / 1e3 / steps
    total = sum(spent.values())
    needed = spent["convolution"] + spent["its gradient"] + spent["product"]
    return (
        f"{name}, batch {batch}",
        f"{total:.1f}",
        *(f"{taken:.1f}" for taken in spent.values()),
        f"{total / needed:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--save", action="store_true", help="write results/convolutions.txt")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with Record("convolutions", given.save) as record:
        record.table(
            "Images a second of one core",
            ("model", "plain", "float32", "bfloat16", "x plain", "bf16 x plain", "floor", "of it"),
            (row(name, given.steps) for name in given.models),
        )
        record.table(
            "Milliseconds of a step in float32",
            ("model", "all", *(kind.strip() for kind in OPERATIONS), "rest", "at most"),
            (profile_row(name, given.steps) for name in given.models),
        )


if __name__ == "__main__":
    main()

"""The letter's server-time table: seconds per round of each rule on the head of Stanford Dogs.

K = 10 clients and P = 293,752 numbers, as in the letter. What a rule costs depends on sizes, not on
values, so the models are the initial head and, for the clients, that head moved by one per
cent in random directions; FedLAW's proxy set is 10 x 120 random feature vectors. Each rule plays
some rounds to warm up and then some that are timed, alternating between two matrices of client
models as the simulator does; the median counts.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedhaw.experiments.catalogue import build_rule, letter_options, needs_proxy
from fedhaw.experiments.letter import letter
from fedhaw.experiments.verdict import Verdict
from fedhaw.files import write_text
from fedhaw.reports import Column, Notation, Table
from fedhaw.rules.registry import OF_THE_LETTER, find, title_of

REPEATS = {"fedlaw": 2}  # a round of it takes seconds
DEFAULT_REPEATS = 50
WARM_UP = 2
SECONDS = Notation("s", significant=3)
TIMES = Notation("", significant=3)


@dataclass(frozen=True)
class Timing:
    """One rule's seconds per round.

    Attributes:
        rule: its lower-case name.
        seconds: one a timed round.
    """

    rule: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The number that counts."""
        return float(np.median(self.seconds))


def server_times(device: str = "cpu", store: Path | None = None) -> tuple[Timing, ...]:
    """The times of every rule, measured now or read from what was measured before.

    Args:
        device: where the models lie.
        store: a JSON file; rules it holds measurements of, on this device, are not measured again.
    """
    known = {} if store is None else _stored(store, device)
    for rule in OF_THE_LETTER:
        if rule in known:
            continue
        known[rule] = _measure(rule, device)
        if store is not None:
            content = {"device": device, "timings": [asdict(timing) for timing in known.values()]}
            write_text(store, json.dumps(content, indent=2) + "\n")
    return tuple(known[rule] for rule in OF_THE_LETTER)


def server_time_table(timings: tuple[Timing, ...], notice: str | None = None) -> Table:
    """Ours beside the letter's, in seconds and as multiples of FedAvg.

    The verdict compares multiples of FedAvg, because seconds depend on the machine: the letter's is
    "within" when it lies between the least and the greatest of our timed rounds.
    """
    published: dict[str, float] = letter()["server_time"]["seconds"]
    own = {timing.rule: timing for timing in timings}
    base = own["fedavg"].median
    rows = tuple(
        (
            title_of(rule),
            timing.median,
            published[rule],
            timing.median / base,
            published[rule] / published["fedavg"],
            _verdict(timing, base, published[rule] / published["fedavg"]),
        )
        for rule, timing in own.items()
    )
    return Table(
        (
            Column("Rule"),
            Column("Ours", SECONDS),
            Column("Letter", SECONDS),
            Column("Ours, times FedAvg", TIMES),
            Column("Letter, times FedAvg", TIMES),
            Column("Verdict"),
        ),
        rows,
        title=letter()["server_time"]["title"],
        notice=notice,
        notes=(
            "Median of the timed rounds; K = 10, P = 293,752. The verdict is on multiples of "
            "FedAvg, as seconds depend on the machine: below means that ours costs less.",
        ),
    )


def _verdict(timing: Timing, base: float, published: float) -> Verdict:
    ratios = np.array(timing.seconds) / base
    if ratios.min() <= published <= ratios.max():
        return "within"
    return "above" if ratios.min() > published else "below"


def _measure(name: str, device: str) -> Timing:
    import torch

    from fedhaw.models import Layout, build, proxy_loss
    from fedhaw.rules import Round

    setting = letter()["server_time"]
    clients, features, classes = setting["clients"], setting["features"], setting["classes"]
    random = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build("head", (features,), classes)
    layout = Layout.of(module)
    w = layout.flatten(module).to(device)
    step = 0.01 * float(w.norm()) / layout.size**0.5
    matrices = [
        w + step * torch.randn(clients, layout.size, generator=random).to(device) for _ in range(2)
    ]
    proxy: Any = None
    if needs_proxy(find(name)):
        x = torch.randn(10 * classes, features, generator=random).to(device)
        y = torch.randint(classes, (10 * classes,), generator=random).to(device)
        proxy = proxy_loss(module.to(device), torch.nn.functional.cross_entropy, x, y)
    rule = build_rule(name, letter_options(name, "dogs", False), eta=5e-5, proxy=proxy)
    repeats = REPEATS.get(name, DEFAULT_REPEATS)
    warm_up = 1 if name in REPEATS else WARM_UP
    state, seconds = rule.init(), []
    for t in range(warm_up + repeats):
        current = Round(w, matrices[t % 2], np.full(clients, 200), layers=layout.layers)
        begin = time.perf_counter()
        _, state = rule.aggregate(state, current)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return Timing(name, tuple(seconds[warm_up:]))


def _stored(store: Path, device: str) -> dict[str, Timing]:
    try:
        content = json.loads(store.read_text(encoding="utf-8"))
        if content["device"] != device:
            return {}
        return {t["rule"]: Timing(t["rule"], tuple(t["seconds"])) for t in content["timings"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # nothing usable is there: measure

"""The letter's server-time table: seconds per round of each rule on the head of Stanford Dogs.

K = 10 clients and P = 293,752 numbers, as in the letter. What a rule costs depends on sizes, not on
values, so the models are the initial head and, for the clients, that head moved by one per
cent in random directions; FedLAW's proxy set is 10 x 120 random feature vectors. Rules take turns,
round by round, alternating between two matrices of client models as the simulator does. A run is
some rounds to warm up and then some that are timed, of which the median counts; there are several
runs, and how much they differ is part of the table. On the processor the same is measured with
NumPy's arrays in place of torch's tensors; a rule works on one thread at this size, so that its
processor time is what it takes on a machine that does nothing else, and is what is measured.
"""

import json
import time
from collections.abc import Callable, Sequence
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

RUNS, ROUNDS, WARM_UP = 5, 20, 2
SLOW = {"fedlaw": 2}
"""Timed rounds of rules that take seconds for one; they have one run, and none on NumPy."""

SECONDS = Notation("s", significant=3)
TIMES = Notation("", significant=3)


@dataclass(frozen=True)
class Timing:
    """One rule's seconds per round.

    Attributes:
        rule: its lower-case name.
        backend: "torch" or "numpy".
        runs: the median of each run.
    """

    rule: str
    backend: str
    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The number that counts."""
        return float(np.median(self.runs))

    def ratios(self, base: "Timing") -> list[float]:
        """The rule's multiple of another's time, run by run."""
        if len(self.runs) != len(base.runs):
            return [own / base.median for own in self.runs]
        return [own / other for own, other in zip(self.runs, base.runs, strict=True)]


def server_times(device: str = "cpu", store: Path | None = None) -> tuple[Timing, ...]:
    """The times of every rule, measured now or read from what was measured before.

    Args:
        device: where the models lie.
        store: a JSON file; what it holds of this device is not measured again.
    """
    known = {} if store is None else _stored(store, device)
    fast = [rule for rule in OF_THE_LETTER if rule not in SLOW]
    wanted = [(fast, backend) for backend in ("torch", *(["numpy"] if device == "cpu" else []))]
    wanted += [([rule], "torch") for rule in OF_THE_LETTER if rule in SLOW]
    for rules, backend in wanted:
        if all((rule, backend) in known for rule in rules):
            continue
        known |= {(timing.rule, backend): timing for timing in _measured(rules, backend, device)}
        if store is not None:
            content = {"device": device, "timings": [asdict(timing) for timing in known.values()]}
            write_text(store, json.dumps(content, indent=2) + "\n")
    return tuple(known.values())


def server_time_table(timings: Sequence[Timing], notice: str | None = None) -> Table:
    """Ours beside the letter's, in seconds and as multiples of FedAvg.

    The verdict compares multiples of FedAvg, because seconds depend on the machine: the letter's is
    "within" when it lies between the least and the greatest of our runs.
    """
    published: dict[str, float] = letter()["server_time"]["seconds"]
    own = {(timing.rule, timing.backend): timing for timing in timings}
    rows = []
    for rule in dict.fromkeys(timing.rule for timing in timings):
        ratios = own[rule, "torch"].ratios(own["fedavg", "torch"])
        numpy = own.get((rule, "numpy"))
        beside = None if numpy is None else numpy.ratios(own["fedavg", "numpy"])
        theirs = published[rule] / published["fedavg"]
        rows.append(
            (
                title_of(rule),
                own[rule, "torch"].median,
                published[rule],
                float(np.median(ratios)),
                _spread(ratios),
                None if beside is None else float(np.median(beside)),
                _spread(beside or []),
                theirs,
                _verdict(ratios, theirs),
            )
        )
    return Table(
        (
            Column("Rule"),
            Column("Ours", SECONDS),
            Column("Letter", SECONDS),
            Column("Ours, times FedAvg", TIMES),
            Column("over runs"),
            Column("on NumPy, times FedAvg", TIMES),
            Column("over runs, NumPy"),
            Column("Letter, times FedAvg", TIMES),
            Column("Verdict"),
        ),
        tuple(rows),
        title=letter()["server_time"]["title"],
        notice=notice,
        notes=(
            f"Median of {RUNS} runs of {ROUNDS} rounds; K = 10, P = 293,752; models in torch's "
            "tensors unless NumPy is named. The verdict is on multiples of FedAvg, as seconds "
            "depend on the machine: below means that ours costs less.",
        ),
    )


def _spread(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.3g} to {max(ratios):.3g}" if len(ratios) > 1 else ""


def _verdict(ratios: Sequence[float], published: float) -> Verdict:
    if min(ratios) <= published <= max(ratios):
        return "within"
    return "above" if min(ratios) > published else "below"


def _measured(names: Sequence[str], backend: str, device: str) -> list[Timing]:
    """The runs of some rules, which take turns."""
    slow = SLOW.get(names[0])
    rounds, runs, warm_up = (slow, 1, 1) if slow else (ROUNDS, RUNS, WARM_UP)
    steps = {name: _player(name, backend, device) for name in names}
    medians: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(runs):
        seconds = [{name: step() for name, step in steps.items()} for _ in range(warm_up + rounds)][
            warm_up:
        ]
        for name, own in medians.items():
            own.append(float(np.median([turn[name] for turn in seconds])))
    return [Timing(name, backend, tuple(own)) for name, own in medians.items()]


def _player(name: str, backend: str, device: str) -> Callable[[], float]:
    """A rule that plays a round when called, and says how many seconds that took."""
    import torch

    from fedhaw.models import Layout, build, proxy_loss
    from fedhaw.rules import Round
    from fedhaw.simulation.preparation import device_of

    place = device_of(device)

    setting = letter()["server_time"]
    clients, features, classes = setting["clients"], setting["features"], setting["classes"]
    random = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build("head", (features,), classes)
    layout = Layout.of(module)
    w: Any = layout.flatten(module).to(place)
    step = 0.01 * float(w.norm()) / layout.size**0.5
    matrices: list[Any] = [
        w + step * torch.randn(clients, layout.size, generator=random).to(place) for _ in range(2)
    ]
    proxy: Any = None
    if needs_proxy(find(name)):
        x = torch.randn(10 * classes, features, generator=random).to(place)
        y = torch.randint(classes, (10 * classes,), generator=random).to(place)
        proxy = proxy_loss(module.to(place), torch.nn.functional.cross_entropy, x, y)
    if backend == "numpy":
        w, matrices = w.numpy(), [matrix.numpy() for matrix in matrices]
    rule = build_rule(name, letter_options(name, "dogs", False), eta=5e-5, proxy=proxy)
    state = rule.init()

    # FedLAW's proxy loss is torch's, which spreads it over the cores.
    clock = time.process_time if place.type == "cpu" and name not in SLOW else time.perf_counter

    def play() -> float:
        nonlocal state
        matrices.reverse()
        current = Round(w, matrices[0], np.full(clients, 200), layers=layout.layers)
        begin = clock()
        _, state = rule.aggregate(state, current)
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        return clock() - begin

    return play


def _stored(store: Path, device: str) -> dict[tuple[str, str], Timing]:
    try:
        content = json.loads(store.read_text(encoding="utf-8"))
        if content["device"] != device:
            return {}
        return {
            (t["rule"], t["backend"]): Timing(t["rule"], t["backend"], tuple(t["runs"]))
            for t in content["timings"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # nothing usable is there: measure

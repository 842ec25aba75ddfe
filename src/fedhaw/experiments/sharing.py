"""How the runs of a sweep share the machine, and how many at a time are fastest."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fedhaw.rules.threads import available_cores
from fedhaw.settings import SWEEP_SETTINGS, InvalidSetting, Place

if TYPE_CHECKING:
    from fedhaw.simulation import Federation

START = 3.0
"""Seconds until a fresh process can run something: it imports torch."""

MULTIPLICATIONS_A_SECOND = 2e10
SECONDS_A_STEP, SECONDS_A_ROUND = 5e-5, 5e-3
"""What a run takes on one core, roughly; see benchmarks/sweep.py. They decide nothing but which of
two ways is faster, and are not measured anew: the choice is the same each time."""

STACKED_SPEEDUP = 1.5
"""What several cores bring a run of stacks, most of them small; see benchmarks/engines.py."""


@dataclass(frozen=True)
class Sharing:
    """How the runs of a sweep share the machine; none of it changes a result.

    Attributes:
        jobs: how many runs at a time; None for as many as are fastest.
        devices: devices that runs are handed in turn; none leaves each where its recipe says.
        cluster: the address of a cluster that computes them; None for this machine.
    """

    jobs: int | None = None
    devices: tuple[str, ...] = ()
    cluster: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, object], place: Place = str) -> Self:
        """What flags or keywords say, checked.

        Raises:
            InvalidSetting: it cannot be.
        """
        given = {
            name: SWEEP_SETTINGS[name].checked(value, place(name))
            for name, value in values.items()
            if value is not None
        }
        jobs, devices = given.get("jobs"), str(given.get("devices", ""))
        named = [device.strip() for device in devices.split(",")] if devices else []
        if "" in named:
            raise InvalidSetting(
                f"{place('devices')} is {devices!r}; name devices with commas between them, such "
                "as cuda:0,cuda:1."
            )
        cluster = given.get("cluster")
        return cls(
            jobs if isinstance(jobs, int) else None,
            tuple(named),
            None if cluster is None else str(cluster),
        )

    def at_once(self, runs: "Sequence[Federation]") -> int:
        """How many runs at a time, given the federation of each run that is waiting."""
        asked = self.jobs or len(self.devices) or None
        return min(asked or fastest(runs), max(len(runs), 1))


def fastest(runs: "Sequence[Federation]", cores: int | None = None) -> int:
    """How many runs at a time are probably fastest; depends on the sweep and the machine alone.

    One run at a time has all cores, of which engines make more or less; as many as there are cores
    have one each, once their processes have started.

    Args:
        runs: the federation of each run.
        cores: how many there are, default those that this process may use.
    """
    cores = available_cores() if cores is None else cores
    # On a device of its own, or against the clock, a run wants the machine to itself.
    alone = [run.device.type != "cpu" or run.settings["deadline"] is not None for run in runs]
    if not runs or any(alone) or any(run.settings["engine"] == "processes" for run in runs):
        return 1
    together = min(cores, len(runs), max(1, _memory() // (2 * max(map(_bytes, runs)))))
    seconds = [_seconds(run) for run in runs]
    one_by_one = sum(
        own / _speedup(run, cores) + (START if _engine(run) == "processes" else 0)
        for run, own in zip(runs, seconds, strict=True)
    )
    side_by_side = START + max(max(seconds), sum(seconds) / together)
    return together if together > 1 and side_by_side < one_by_one else 1


def _seconds(run: "Federation") -> float:
    """What a run takes on one core."""
    settings, samples = run.settings, int(run.sizes.sum())
    share = (settings["cohort"] or run.clients) / max(run.clients, 1)
    visits = samples * settings["epochs"] * share
    steps = visits / settings["batch"] + run.clients * share
    products = 3.0 * run.layout.parameters * visits
    seconds = SECONDS_A_ROUND + SECONDS_A_STEP * steps + products / MULTIPLICATIONS_A_SECOND
    return settings["rounds"] * seconds


def _speedup(run: "Federation", cores: int) -> float:
    """How many times faster a run is when it has all cores.

    The longest client of "processes" must be waited for; stacks wait for the interpreter, too.
    """
    workers = min(run.settings["workers"] or cores, run.clients)
    if _engine(run) == "processes":
        return max(1.0, min(workers, float(run.sizes.sum() / max(run.sizes.max(), 1))))
    return min(workers, STACKED_SPEEDUP) if _engine(run) == "stacked" else 1.0


def _engine(run: "Federation") -> str:
    """The engine that trains the run's clients."""
    from fedhaw.simulation.engines.choice import choose

    engine = run.settings["engine"]
    return choose(run) if engine == "auto" else engine


def _bytes(run: "Federation") -> int:
    """The memory of a run's own: two rounds' models, and a few more for the rule and the client."""
    cohort = run.settings["cohort"] or run.clients
    return (2 * cohort + 8) * run.layout.size * 4 + 2**28


def _memory() -> int:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return 2**34

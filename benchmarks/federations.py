"""The federations in which the default rule is judged, and the rules beside it, table by table."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from bad_clients import Attacked, poisoned
from numpy.typing import NDArray
from replayed_fedavg import ReplayedFedAvg
from torch import nn

import fedhaw
from fedhaw.data import Dataset, load, split
from fedhaw.experiments.catalogue import filled_options
from fedhaw.rules import Rule
from fedhaw.simulation import Federation
from fedhaw.simulation.run import RuleSource

DEFAULT = "FedHAW-auto"
CHIEF = ("FedAvg", "FedAvgM 0.9", DEFAULT)
BAD_CLIENTS = {0: (), 1: (2,), 3: (0, 2, 5)}
MULTIPLES = {"update x -1": -1.0, "update x -10": -10.0, "update x 100": 100.0, "free": 0.0}


@dataclass(frozen=True)
class Cell:
    """One federation, and the rules that run in it.

    Attributes:
        name: for people, and for the folder.
        data: a data set or its name.
        rounds: how many.
        settings: the federation's.
        rules: by title.
        clean: the settings without the bad clients, for rules whose title begins with "clean".
        clean_name: the name of that federation; it is the same for all kinds of bad clients.
        bad: whether some clients are bad.
        slow: whether all but the chief rules run for the first horizon alone.
    """

    name: str
    data: str | Dataset
    rounds: int
    settings: Mapping[str, Any]
    rules: Mapping[str, RuleSource]
    clean: Mapping[str, Any] = field(default_factory=dict)
    clean_name: str = ""
    bad: bool = False
    slow: bool = False

    def rounds_of(self, title: str, table: str) -> int:
        """How many rounds a rule runs."""
        brief = title in BRIEF or (self.slow and title not in CHIEF)
        return min(self.rounds, HORIZONS[table][0]) if brief else self.rounds

    def place(self, title: str) -> str:
        """The name of the federation in which a rule runs."""
        return self.clean_name if title.startswith("clean") else self.name


SGD: dict[str, Any] = {"batch": 32}
ADAM = SGD | {"client_update": "adam"}
KINDS: dict[str, dict[str, Any]] = {
    f"SGD {eta:g}": SGD | {"eta": eta} for eta in (0.001, 0.01, 0.1)
} | {
    "momentum 0.01": SGD | {"eta": 0.01, "momentum": 0.9},
    "Adam 0.001": ADAM | {"eta": 1e-3},
    "linear, Adam 0.0005": ADAM | {"eta": 5e-4, "model": "logistic"},
    "linear from zero, SGD 0.05": SGD | {"eta": 0.05, "model": f"{__file__}:linear_from_zero"},
    "10 of 100 clients, SGD 0.05": SGD
    | {"eta": 0.05, "clients": 100, "cohort": 10, "split": "dirichlet"},
}
WISDM: dict[str, Any] = {
    "model": "mlp-64",
    "split": "holders",
    "clients": 36,
    "eta": 0.05,
    "batch": 16,
}
LONG: dict[str, dict[str, Any]] = {
    f"SGD {eta:g}": SGD | {"eta": eta} for eta in (0.1, 0.15, 0.05, 0.01, 0.001)
} | {
    "SGD 0.1, weight decay": SGD | {"client_update": "sgd-wd", "eta": 0.1},
    "Adam 0.001": ADAM | {"eta": 1e-3},
    "Adam 0.0001": ADAM | {"eta": 1e-4},
}
SMALL_LONG = ("SGD 0.1", "SGD 0.01", "SGD 0.001", "Adam 0.001")
DOGS: dict[str, Any] = SGD | {"model": "logistic", "eta": 0.01}
CIFAR10: dict[str, Any] = SGD | {
    "eta": 0.05,
    "epochs": 1,  # as elsewhere here; the letter's ten are CIFAR-10's default
    "train_samples": 1000,
    "precision": "bfloat16",
    "engine": "sequential",  # convolutions do not get faster in a stack
}
SEEDS = {"full": 3, "small": 2}
HORIZONS = {
    "kinds": (40, 200), "cifar10": (40, 200), "long": (40, 200, 1000),
    "long-kinds": (40, 200, 1000), "trust": (60,), "absent": (60, 200),
    "long-trust": (60, 200, 1000), "own": (40, 200), "unseen": (40, 200), "later": (40, 200),
    "last": (40, 200),
}  # fmt: skip
LETTERS_LOSSES: dict[str, dict[str, Any]] = {"": {}, ", p_e 0.8": {"uplink": 0.8}}
LOSSES = LETTERS_LOSSES | {
    ", bursty": {"uplink": "bursty", "loss_rate": 0.5},
    ", by label": {"uplink": "by-label", "loss_rate": 0.9},
    ", by the hour": {"uplink": "hourly", "loss_rate": 0.8},
}


GRIDS = {
    "FedHAW, best of its grid": ("letter's FedHAW", "FedHAW 1e-2", "FedHAW 1e-3", "FedHAW 1e-4"),
    "FedAdam, best of its grid": ("FedAdam", "FedAdam 0.01", "FedAdam 0.001"),
    "FedYogi, best of its grid": ("FedYogi", "FedYogi 0.01", "FedYogi 0.001"),
}
"""Rules at several rates, of which each federation's best counts: more than a user can know."""

PARTS: tuple[Literal["replay", "momentum", "gamma", "trust"], ...]
PARTS = ("replay", "momentum", "gamma", "trust")
REPLAYED = "FedAvg with replay"
ABLATIONS = (*(f"{DEFAULT} without {part}" for part in PARTS), REPLAYED)
WITH_PROXY = "FedLAW"
MISUSED = "FedHAW at SGD's rates"
BRIEF = {*ABLATIONS, WITH_PROXY, *(title for grid in GRIDS.values() for title in grid[1:])}
"""What is run for the first horizon alone."""


def rules_beside(eta: float, lossy: bool) -> dict[str, RuleSource]:
    """Every rule of the comparison, with the letter's rates for MNIST, and the ablations."""

    def letters(eta_gamma: float) -> fedhaw.FedHAW:
        return fedhaw.FedHAW(eta=eta, eta_gamma=eta_gamma, eta_lambda=1e-2)

    rules: dict[str, RuleSource] = {
        "FedAvg": fedhaw.FedAvg(),
        "FedAvgM 0.9": fedhaw.FedAvgM(),
        DEFAULT: fedhaw.FedHAWAuto(),
        "letter's FedHAW": letters(1e-4 if lossy else 1e-3),
        "FedAdam": fedhaw.FedAdam(),
        "FedYogi": fedhaw.FedYogi(),
        "FedExP": fedhaw.FedExP(),
        "MIFA": fedhaw.MIFA(),
        "FedVARP": fedhaw.FedVARP(),
        "FedAU": fedhaw.FedAU(),
        "FedAWA": fedhaw.FedAWA(),
        WITH_PROXY: with_proxy_data,
    }
    rules |= {f"{DEFAULT} without {part}": fedhaw.FedHAWAuto(without=part) for part in PARTS}
    rules |= {f"FedHAW {rate}": letters(float(rate)) for rate in ("1e-2", "1e-3", "1e-4")}
    for rate in (0.01, 0.001):
        rules[f"FedAdam {rate}"] = fedhaw.FedAdam(eta_s=rate)
        rules[f"FedYogi {rate}"] = fedhaw.FedYogi(eta_s=rate)
    return rules | {REPLAYED: ReplayedFedAvg()}


def linear_from_zero(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A linear model without anything in it."""
    linear = nn.Linear(math.prod(input_shape), classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.Flatten(), linear)


def with_proxy_data(federation: Federation) -> Rule[Any]:
    """FedLAW, the only rule here that sees samples of the server's own."""
    return fedhaw.FedLAW(federation.proxy_losses())


def kinds(wisdm: str | None, dogs: str | None) -> Iterator[Cell]:
    """The federations of many kinds."""
    for (name, data, settings), (loss, uplink) in product(_places(wisdm, dogs), LOSSES.items()):
        rules = rules_beside(settings["eta"], bool(uplink))
        yield Cell(name + loss, data, HORIZONS["kinds"][-1], settings | uplink, rules)


def cifar10(folder: str) -> Iterator[Cell]:
    """A small CNN and a narrow ResNet on a part of CIFAR-10."""
    shared = CIFAR10 | {"data_dir": folder}
    first, last = HORIZONS["cifar10"]
    for loss, uplink in LOSSES.items():
        rules, settings = rules_beside(shared["eta"], bool(uplink)), shared | {"model": "cnn"}
        yield Cell(f"CNN{loss}", "cifar10", last, settings | uplink, rules, slow=True)
    # Of a thousand images it learns next to nothing.
    resnet = shared | {"model": "resnet18-8", "train_samples": 4000}
    for loss, uplink in LETTERS_LOSSES.items():
        rules = rules_beside(resnet["eta"], bool(uplink))
        yield Cell(f"ResNet{loss}", "cifar10", first, resnet | uplink, rules)


def long_kinds(wisdm: str | None, dogs: str | None) -> Iterator[Cell]:
    """The chief rules for a thousand rounds, in those of the many kinds that `long` has not."""
    others = [place for place in _places(wisdm, dogs) if place[0] not in LONG]
    for (name, data, settings), (loss, uplink) in product(others, LETTERS_LOSSES.items()):
        rules = rules_beside(settings["eta"], bool(uplink))
        chosen = {title: rules[title] for title in CHIEF}
        yield Cell(name + loss, data, HORIZONS["long-kinds"][-1], settings | uplink, chosen)


def _places(wisdm: str | None, dogs: str | None) -> list[tuple[str, str | Dataset, dict[str, Any]]]:
    """By name, the data and the settings of each kind."""
    places: list[tuple[str, str | Dataset, dict[str, Any]]]
    places = [(name, "mnist-5k", settings) for name, settings in KINDS.items()]
    if wisdm:
        places.append(("WISDM by person", wisdm, WISDM))
    if dogs:
        places.append(("Dogs' features, linear", load("stanford-dogs", dogs), DOGS))
    return places


def long(small: bool) -> Iterator[Cell]:
    """The runs of a thousand rounds."""
    updates = {name: LONG[name] for name in (SMALL_LONG if small else LONG)}
    for (name, settings), alpha, (loss, uplink) in product(
        updates.items(), (0.1, 1.0), LETTERS_LOSSES.items()
    ):
        rules = rules_beside(settings["eta"], bool(uplink))
        chosen = dict(rules)
        if settings.get("client_update") == "adam":  # the letter's rates for it are far smaller
            rates: Any = filled_options("fedhaw", {}, "dogs", bool(uplink))
            chosen[MISUSED] = chosen["letter's FedHAW"]
            chosen["letter's FedHAW"] = fedhaw.FedHAW(eta=settings["eta"], **rates)
        label = f"{name}, alpha {alpha:g}{loss}"
        yield Cell(label, "mnist-5k", 1000, settings | uplink | {"alpha": alpha}, chosen)


def against(kind: str, count: int, bad: tuple[int, ...]) -> dict[str, Rule[Any]]:
    """The rules that stand against bad clients, of whom so many are in a round."""
    rules: dict[str, Rule[Any]] = {
        "FedAvg": fedhaw.FedAvg(),
        "FedAvgM 0.9": fedhaw.FedAvgM(),
        DEFAULT: fedhaw.FedHAWAuto(),
        f"{DEFAULT} without trust": fedhaw.FedHAWAuto(without="trust"),
        "median": fedhaw.Median(),
        "trimmed mean": fedhaw.TrimmedMean(),
        "multi-Krum": fedhaw.MultiKrum(f=count),
        "RFA": fedhaw.RFA(),
        "norm clipping": fedhaw.Clipped(),
        "FedAWA": fedhaw.FedAWA(),
    }
    if kind not in MULTIPLES:
        return rules
    return {title: Attacked(rule, bad, MULTIPLES[kind]) for title, rule in rules.items()}


def trust(small: bool) -> Iterator[Cell]:
    """The federations with bad clients, and those same without them."""
    data = _mnist()
    splits, counts = [(1.0, "letter"), (0.1, "letter")], [3]
    if not small:
        splits, counts = [*splits, (1.0, "iid")], [3, 1]
    for kind, (alpha, how) in product(("none", "labels", "inputs", "flipped", *MULTIPLES), splits):
        parts = split(data, how, 10, alpha=alpha, seed=None)
        for count in [0] if kind == "none" else counts:
            bad = BAD_CLIENTS[count]
            good = [part for k, part in enumerate(parts) if k not in bad]
            clean = {f"clean {t}": r for t, r in rules_beside(0.01, False).items()}
            only = {t: clean[t] for t in ("clean FedAvg", f"clean {DEFAULT}") if bad}
            place = "IID" if how == "iid" else f"alpha {alpha:g}"
            settings = SGD | {"eta": 0.01, "split": parts}
            yield Cell(
                f"{count} {kind}, {place}", poisoned(data, parts, bad, kind), 60, settings,
                {**only, **against(kind, count, bad)}, {"data": data, "split": good},
                f"without {count}, {place}", bool(bad),
            )  # fmt: skip


ABSENCES: dict[str, tuple[int, dict[str, Any]]] = {
    "p_e 0.8": (10, {"uplink": 0.8}),
    "10 of 30 clients": (30, {"cohort": 10}),
}


def absent() -> Iterator[Cell]:
    """Federations with bad clients in which many are absent: lost, or not asked."""
    data = _mnist()
    for (place, (clients, settings)), alpha in product(ABSENCES.items(), (1.0, 0.1)):
        parts = split(data, "letter", clients, alpha=alpha, seed=None)
        bad = tuple(k for k in range(clients) if k % 10 in BAD_CLIENTS[3])
        honest = [part for k, part in enumerate(parts) if k not in bad]
        good = {"data": data, "split": honest}
        if "cohort" in settings:  # the same part of them
            good["cohort"] = settings["cohort"] * len(honest) // clients
        for kind in ("none", "labels", "flipped", "update x -1"):
            liars = bad if kind != "none" else ()
            rules = against(kind, 3, liars)
            chosen = {t: rules[t] for t in (*CHIEF, f"{DEFAULT} without trust", "multi-Krum")}
            clean = {f"clean {t}": rules_beside(0.01, False)[t] for t in ("FedAvg", DEFAULT)}
            where = f"alpha {alpha:g}, {place}"
            yield Cell(
                f"{len(liars)} {kind}, {where}", poisoned(data, parts, liars, kind),
                HORIZONS["absent"][-1], SGD | {"eta": 0.01, "split": parts} | settings,
                {**(clean if liars else {}), **chosen}, good, f"without {len(bad)}, {where}",
                bool(liars),
            )  # fmt: skip


def long_trust() -> Iterator[Cell]:
    """Three bad clients of ten for a thousand rounds, in which a liar may come back."""
    data, bad = _mnist(), BAD_CLIENTS[3]
    for alpha, eta, (loss, uplink) in product((1.0, 0.1), (0.01, 0.1), LETTERS_LOSSES.items()):
        parts = split(data, "letter", 10, alpha=alpha, seed=None)
        honest = [part for k, part in enumerate(parts) if k not in bad]
        where = f"SGD {eta:g}, alpha {alpha:g}{loss}"
        for kind in ("labels", "flipped", "update x -1"):
            rules = against(kind, 3, bad)
            chosen = {title: rules[title] for title in (*CHIEF, "multi-Krum")}
            yield Cell(
                f"3 {kind}, {where}", poisoned(data, parts, bad, kind),
                HORIZONS["long-trust"][-1], SGD | {"eta": eta, "split": parts} | uplink,
                {"clean FedAvg": fedhaw.FedAvg(), **chosen}, {"data": data, "split": honest},
                f"without 3, {where}", True,
            )  # fmt: skip


UNSEEN: dict[str, dict[str, Any]] = {
    name: settings | {"model": "mlp"}
    for name, settings in {
        "SGD 0.01": SGD | {"eta": 0.01}, "SGD 0.1": SGD | {"eta": 0.1},
        "Adam 0.001": ADAM | {"eta": 1e-3},
    }.items()
}  # fmt: skip


def unseen(folder: Path) -> Iterator[Cell]:
    """The same federations with every data set in a folder, of which the rule knows nothing."""
    for file in sorted(folder.glob("*.npz")):
        data = load(file)
        uneven, even = (split(data, "dirichlet", 10, alpha=alpha) for alpha in (0.1, 1.0))
        rounds = HORIZONS["unseen"][-1]
        for (name, settings), (loss, uplink) in product(UNSEEN.items(), LETTERS_LOSSES.items()):
            rules = rules_beside(settings["eta"], bool(uplink))
            chosen = {title: rules[title] for title in (*CHIEF, f"{DEFAULT} without trust")}
            label = f"{file.stem}, {name}{loss}"
            yield Cell(label, data, rounds, settings | uplink | {"split": uneven}, chosen)
        for kind in ("labels", "flipped", "update x -1"):
            spoilt = poisoned(data, even, BAD_CLIENTS[3], kind)
            some = {
                title: rule
                for title, rule in against(kind, 3, BAD_CLIENTS[3]).items()
                if title in (*CHIEF, "multi-Krum")
            }
            label = f"{file.stem}, SGD 0.1, 3 {kind}"
            federation = UNSEEN["SGD 0.1"] | {"split": even}
            yield Cell(label, spoilt, rounds, federation, some, bad=True)
        if data.classes == 2:
            apart = _a_class_each(data)
            for name in ("SGD 0.01", "SGD 0.1"):
                rules = rules_beside(UNSEEN[name]["eta"], False)
                chosen = {title: rules[title] for title in (*CHIEF, f"{DEFAULT} without trust")}
                label = f"{file.stem}, {name}, a class each"
                yield Cell(label, data, rounds, UNSEEN[name] | {"split": apart}, chosen)


OWN_CLASSES: dict[str, tuple[tuple[int, ...], int]] = {
    "0 to 2 or not, three have them": ((0, 1, 2), 3),
    "8 or 9 or not, two have them": ((8, 9), 2),
    "3 or not, one has it": ((3,), 1),
}
"""Two classes of digits, of which every client holds one."""


def own() -> Iterator[Cell]:
    """Honest clients that alone hold a class: of two classes, or of ten."""
    digits = _mnist()
    places: dict[str, tuple[Dataset, list[NDArray[np.int64]]]] = {}
    for name, (rare, holders) in OWN_CLASSES.items():
        y_train, y_test = (
            np.isin(y, rare).astype(np.int64) for y in (digits.y_train, digits.y_test)
        )
        data = replace(
            digits, name=name, y_train=y_train, y_test=y_test, classes=2, whole_labels=None
        )
        places[name] = data, [*_dealt(y_train == 1, holders), *_dealt(y_train == 0, 10 - holders)]
    for classes in ((9,), (9, 4), tuple(range(10))):
        alone = [np.flatnonzero(digits.y_train == label) for label in classes]
        others = _dealt(~np.isin(digits.y_train, classes), 10 - len(alone))
        who = {1: "one client has all 9", 2: "two have all 9 and all 4", 10: "a class a client"}
        places[who[len(alone)]] = digits, [*alone, *others]
    updates = UNSEEN | {"SGD 0.003": UNSEEN["SGD 0.01"] | {"eta": 0.003}}
    for (name, (data, parts)), (update, settings) in product(places.items(), updates.items()):
        rules = rules_beside(settings["eta"], False)
        chosen = {title: rules[title] for title in (*CHIEF, f"{DEFAULT} without trust")}
        rounds = HORIZONS["own"][-1]
        yield Cell(f"{name}, {update}", data, rounds, settings | {"split": parts}, chosen)


def _dealt(wanted: NDArray[np.bool_], clients: int) -> list[NDArray[np.int64]]:
    """Samples by lot over some clients."""
    rows = np.random.default_rng(0).permutation(np.flatnonzero(wanted))
    return np.array_split(rows, clients) if clients else []


def _a_class_each(data: Dataset) -> list[NDArray[np.int64]]:
    """Ten clients with one of two classes each: three that hold the rarer one, and seven."""
    common, rare = (
        np.flatnonzero(data.y_train == label)
        for label in np.argsort(-np.bincount(data.y_train, minlength=2))
    )
    return [*np.array_split(rare, 3), *np.array_split(common, 7)]


@cache
def _mnist() -> Dataset:
    return load("mnist-5k", None)

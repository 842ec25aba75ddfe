"""Is the default rule safe, fast and a judge of clients? Tables beside the rules a reviewer names.

    python benchmarks/default_rule.py kinds long trust [--scale small] [--jobs N] [--out FOLDER]
        [--only TEXT] [--seeds N] [--rules TITLES] [--wisdm FILE] [--dogs FOLDER] [--show] [--save]

- kinds: federations of many kinds, without and with four sorts of losses: 200 rounds, of which the
  first 40 are a table of their own, with the ablations of the default, the grids of rules that have
  rates, and FedLAW, which has data of the server's own.
- long: a thousand rounds, of which the first 40 and 200 are tables of their own; with the deepest
  fall below FedAvg's accuracy of the same round once FedAvg has passed 60 %.
- trust: some of ten clients are bad, 60 rounds.

All three are about 900,000 rounds, of which two cores do 1,500 to 3,500 a minute. `--scale small`
is about half of that, with two seeds instead of three: of the long runs those at
four of eight client updates, of the bad clients three of ten but not one, and no IID split. `--jobs
2` runs two at a time. Runs that are in FOLDER already are not repeated, and those that were stopped
go on, so it can be stopped at any time; all runs of a seed come before the next seed's. `--show`
runs nothing and prints what is there. A cell is the accuracy at the end in %, averaged over the
last three evaluations, and in parentheses the average over all rounds, over the seeds that were
run. Below each table stand ranks, and differences with errors (`standings.py`).
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import joblib
import numpy as np
import standings
from bad_clients import Attacked, poisoned
from numpy.typing import NDArray
from record import Record
from replayed_fedavg import ReplayedFedAvg
from torch import nn

import fedhaw
from fedhaw.data import Dataset, load, split
from fedhaw.experiments.backends import processes
from fedhaw.rules import Rule
from fedhaw.rules.threads import limit_cores
from fedhaw.simulation import Federation
from fedhaw.simulation.run import RuleSource

DEFAULT = "FedHAW-auto"
BAD_CLIENTS = {0: (), 1: (2,), 3: (0, 2, 5)}
MULTIPLES = {"update x -1": -1.0, "update x -10": -10.0, "update x 100": 100.0, "free": 0.0}
EVERY = 5


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
    """

    name: str
    data: str | Dataset
    rounds: int
    settings: Mapping[str, Any]
    rules: Mapping[str, RuleSource]
    clean: Mapping[str, Any] = field(default_factory=dict)
    clean_name: str = ""

    def rounds_of(self, title: str, table: str) -> int:
        """How many rounds a rule runs."""
        return min(self.rounds, HORIZONS[table][0]) if title in BRIEF else self.rounds

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
SEEDS = {"full": 3, "small": 2}
HORIZONS = {"kinds": (40, 200), "long": (40, 200, 1000), "trust": (60,)}
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
    places: list[tuple[str, str | Dataset, dict[str, Any]]]
    places = [(name, "mnist-5k", settings) for name, settings in KINDS.items()]
    if wisdm:
        places.append(("WISDM by person", wisdm, WISDM))
    if dogs:
        places.append(("Dogs' features, linear", load("stanford-dogs", dogs), DOGS))
    for (name, data, settings), (loss, uplink) in product(places, LOSSES.items()):
        rules = rules_beside(settings["eta"], bool(uplink))
        yield Cell(name + loss, data, HORIZONS["kinds"][-1], settings | uplink, rules)


def long(small: bool) -> Iterator[Cell]:
    """The runs of a thousand rounds."""
    updates = {name: LONG[name] for name in (SMALL_LONG if small else LONG)}
    for (name, settings), alpha, (loss, uplink) in product(
        updates.items(), (0.1, 1.0), LETTERS_LOSSES.items()
    ):
        rules = rules_beside(settings["eta"], bool(uplink))
        chosen = {title: rules[title] for title in list(rules)[:4]}
        label = f"{name}, alpha {alpha:g}{loss}"
        yield Cell(label, "mnist-5k", 1000, settings | uplink | {"alpha": alpha}, chosen)


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
            beside: dict[str, Rule[Any]] = {
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
            if kind in MULTIPLES:
                beside = {t: Attacked(rule, bad, MULTIPLES[kind]) for t, rule in beside.items()}
            clean = {f"clean {t}": r for t, r in rules_beside(0.01, False).items()}
            only = {t: clean[t] for t in ("clean FedAvg", f"clean {DEFAULT}") if bad}
            place = "IID" if how == "iid" else f"alpha {alpha:g}"
            settings = SGD | {"eta": 0.01, "split": parts}
            yield Cell(
                f"{count} {kind}, {place}", poisoned(data, parts, bad, kind), 60, settings,
                {**only, **beside}, {"data": data, "split": good}, f"without {count}, {place}",
            )  # fmt: skip


@cache
def _mnist() -> Dataset:
    return load("mnist-5k", None)


@dataclass(frozen=True)
class Evidence:
    """The runs of a table.

    Attributes:
        table: its name.
        out: the folder of all runs.
        titles: the rules that are asked for; none for all.
        seeds: how many.
    """

    table: str
    out: Path
    titles: tuple[str, ...]
    seeds: int

    def rules(self, cell: Cell) -> dict[str, RuleSource]:
        """Those of a cell that are asked for."""
        return {t: r for t, r in cell.rules.items() if not self.titles or t in self.titles}

    def folder(self, cell: Cell, title: str, seed: int) -> Path:
        """Where a run lies."""
        name = f"{self.table}/{cell.place(title)}/{title}/{seed}"
        return self.out / name.replace(" ", "-").replace("/", "-").replace(",", "")

    def run(self, cell: Cell, title: str, seed: int) -> None:
        """A run, or the rest of it."""
        changes = cell.clean if title.startswith("clean") else {}
        settings = {"data": cell.data, **cell.settings, **changes}
        fedhaw.simulate(
            cell.rules[title], settings.pop("data"), engine="stacked", seed=seed,
            rounds=cell.rounds_of(title, self.table), evaluate_every=EVERY, checkpoint_every=100,
            out=self.folder(cell, title, seed), **settings,
        )  # fmt: skip

    def found(self, cell: Cell, title: str, rounds: int) -> dict[int, fedhaw.History]:
        """The runs that came at least so far, by seed."""
        read = {}
        for seed in range(self.seeds):
            if (self.folder(cell, title, seed) / "history.jsonl").exists():
                history = fedhaw.History.read(self.folder(cell, title, seed))
                if len(history.records) >= rounds:
                    read[seed] = history
        return read


def accuracies(history: fedhaw.History, rounds: int) -> NDArray[np.float64]:
    """(evaluations,) in %, of the first rounds of a run."""
    accuracy = 100 * np.asarray(history.accuracy)[:rounds]
    return accuracy[~np.isnan(accuracy)]


def end(history: fedhaw.History, rounds: int) -> float:
    """The accuracy at the end in %, averaged over the last three evaluations."""
    return float(accuracies(history, rounds)[-3:].mean())


def show(record: Record, evidence: Evidence, cells: list[Cell], rounds: int) -> None:
    """A table of what was run, and its standings."""
    rows, scores = [], {}
    for cell in cells:
        titles = [title for title in cell.rules if cell.rounds_of(title, evidence.table) >= rounds]
        runs = {title: evidence.found(cell, title, rounds) for title in titles}
        if not any(runs.values()):
            continue
        rows.append((cell.name, runs, _remarks(runs, rounds)))
        scores[cell.name] = _with_grids({
            title: {seed: end(run, rounds) for seed, run in own.items()}
            for title, own in runs.items()
            if own and not title.startswith("clean")
        })  # fmt: skip
    if not rows:
        return
    columns = list(dict.fromkeys(title for _, runs, _ in rows for title in runs if runs[title]))
    record.table(
        f"{evidence.table}, {rounds} rounds: {len(rows)} of {len(cells)} federations run",
        ("federation", *columns, f"{DEFAULT}, of all seeds"),
        [
            (name, *(_entry(runs.get(title, {}), rounds) for title in columns), remarks)
            for name, runs, remarks in rows
        ],
    )
    proper = _chosen(scores, lambda title: title not in BRIEF)
    where: dict[str, standings.Scores] = {"all": proper}
    if evidence.table != "trust":
        lossy = {c.name for c in cells if "uplink" in c.settings}
        where |= {
            "without losses": {k: v for k, v in proper.items() if k not in lossy},
            "with losses": {k: v for k, v in proper.items() if k in lossy},
        }
    proxy = f", and {WITH_PROXY} with proxy data" if evidence.table == "kinds" else ""
    where[f"its parts{proxy}"] = _chosen(
        scores, lambda title: title in {DEFAULT, WITH_PROXY, *ABLATIONS}
    )
    for sort, chosen in where.items():
        if len({title for cell in chosen.values() for title in cell}) > 1:
            record.table(
                f"{DEFAULT} in {evidence.table}, {rounds} rounds, {sort}: ranks over "
                f"{len(standings.shared(chosen))} federations",
                standings.COLUMNS,
                standings.rows(chosen, DEFAULT),
            )


def _chosen(scores: standings.Scores, wanted: Callable[[str], bool]) -> standings.Scores:
    """The scores of some of the rules."""
    return {
        cell: {title: own for title, own in rules.items() if wanted(title)}
        for cell, rules in scores.items()
    }


def _with_grids(rules: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """The scores of one federation, with those of each grid's best where all of it was run."""
    best = {
        name: max((rules[title] for title in grid), key=lambda own: sum(own.values()) / len(own))
        for name, grid in GRIDS.items()
        if all(title in rules for title in grid)
    }
    return rules | best


def _entry(runs: Mapping[int, fedhaw.History], rounds: int) -> str:
    if not runs:
        return "-"
    ends = np.mean([end(run, rounds) for run in runs.values()])
    return f"{ends:.1f} ({np.mean([accuracies(run, rounds) for run in runs.values()]):.1f})"


def _remarks(runs: Mapping[str, Mapping[int, fedhaw.History]], rounds: int) -> str:
    """How far the default fell below FedAvg on the way, and whom it stopped trusting."""
    own, bar, said = runs.get(DEFAULT, {}), runs.get("FedAvg", {}), []
    falls = []
    for seed in own.keys() & bar.keys():
        ours, theirs = accuracies(own[seed], rounds), accuracies(bar[seed], rounds)
        falls.append((ours - theirs)[np.maximum.accumulate(theirs > 60)].min(initial=np.inf))
    if falls and np.isfinite(min(falls)):
        said.append(f"deepest {min(falls):+.1f}")
    said += [
        f"seed {seed}, round {record.round}: {record.note}"
        for seed, run in own.items()
        for record in run.records[:rounds]
        if record.note and "trust" in record.note
    ]
    return "; ".join(said)


def run_side_by_side(runs: Sequence[tuple[Evidence, Cell, str, int]], jobs: int) -> None:
    """All runs, several at a time in processes of their own; each folder once."""
    # The federation without the bad clients is the same for all kinds of them.
    once = {
        evidence.folder(cell, title, seed): (evidence, cell, title, seed)
        for evidence, cell, title, seed in runs
    }
    with processes(jobs)([]):
        joblib.Parallel(batch_size=1)(joblib.delayed(_work)(*run) for run in once.values())


def _work(evidence: Evidence, cell: Cell, title: str, seed: int) -> None:
    limit_cores(1)
    evidence.run(cell, title, seed)


def main() -> None:
    """Run what is missing, and print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", choices=["kinds", "long", "trust"])
    parser.add_argument("--scale", choices=list(SEEDS), default="full")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time")
    parser.add_argument("--out", type=Path, default=Path("fedhaw-runs/default-rule"))
    parser.add_argument("--only", default="", help="only federations with this text in their name")
    parser.add_argument("--seeds", type=int, help="default: 3, and 2 of the small scale")
    parser.add_argument("--rules", default="", help="titles with commas between; default: all")
    parser.add_argument("--wisdm", default=None, help="wisdm.npz, for the table kinds")
    parser.add_argument("--dogs", default=None, help="folder of Dogs' features, for the same")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--save", action="store_true", help="write results/default_rule.txt")
    args = parser.parse_args()
    small, seeds = args.scale == "small", args.seeds or SEEDS[args.scale]
    titles = tuple(filter(None, args.rules.split(",")))
    makers = {
        "kinds": lambda: kinds(args.wisdm, args.dogs), "long": lambda: long(small),
        "trust": lambda: trust(small),
    }  # fmt: skip
    tables = {
        Evidence(table, args.out, titles, seeds): [
            c for c in makers[table]() if args.only in c.name
        ]
        for table in args.tables
    }
    if not args.show:
        runs = [
            (evidence, cell, title, seed)
            for seed in range(seeds)
            for evidence, cells in tables.items()
            for cell in cells
            for title in evidence.rules(cell)
        ]
        run_side_by_side(runs, args.jobs)
    with Record("default_rule", args.save) as record:
        for evidence, cells in tables.items():
            for rounds in HORIZONS[evidence.table]:
                show(record, evidence, cells, rounds)


if __name__ == "__main__":
    main()

"""Is the default rule safe, fast and a judge of clients? Tables beside FedAvg and FedAvgM.

    python benchmarks/default_rule.py kinds|long|trust [--out FOLDER] [--only TEXT] [--seeds N]
        [--rounds N] [--wisdm FILE]

- kinds: federations of many kinds over 40 rounds, with and without lost uploads.
- long: a thousand rounds at rates up to the largest that FedAvg survives.
- trust: some of ten clients are bad.

Every cell is the accuracy at the end in %, averaged over the last 15 rounds or so, and in
parentheses the average over all rounds. `long` shows the deepest fall below FedAvg's accuracy of
the same round, once FedAvg has passed 60 %, instead. Runs that are in FOLDER already are not
repeated, and those that were stopped go on. `--wisdm FILE` adds wisdm.npz to `kinds`.
"""

import argparse
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import fedhaw
from fedhaw.data import Dataset, load, split
from fedhaw.rules import LengthGuard, Rule
from fedhaw.rules.base import Array, Round

BAD_CLIENTS = {1: (2,), 3: (0, 2, 5)}


@dataclass(frozen=True)
class Attacked:
    """A rule some of whose clients send a multiple of their update, behind the length guard.

    Attributes:
        rule: the server's.
        bad: who.
        factor: of the update; 0 for a free rider, which adds noise of a tenth of its length.
    """

    rule: Rule[Any]
    bad: tuple[int, ...]
    factor: float

    def init(self) -> Any:
        """The state before the first round."""
        return self.rule.init()

    def aggregate(self, state: Any, current: Round) -> tuple[Array, Any]:
        """What the rule makes of what the clients claim."""
        w, W = current.global_model, current.client_models.clone()
        for k, name in enumerate(current.names):
            if name in self.bad and current.received[k]:
                update = W[k] - w
                noise = update[np.random.default_rng(k).permutation(len(w))]
                W[k] = w + (self.factor * update if self.factor else 0.1 * noise)
        lengths = {k: float((W[k] - w).norm()) for k in map(int, np.flatnonzero(current.received))}
        examples = dict(enumerate(np.asarray(current.num_examples, dtype=float)))
        refused, _ = LengthGuard().judge(lengths, {k: examples[k] for k in lengths})
        received = current.received.copy()
        received[list(refused)] = False
        W[np.flatnonzero(~received)] = w
        return self.rule.aggregate(state, replace(current, client_models=W, received=received))


RULES: dict[str, Rule[Any]] = {
    "FedAvg": fedhaw.FedAvg(),
    "FedAvgM 0.9": fedhaw.FedAvgM(),
    "FedHAW-auto": fedhaw.FedHAWAuto(),
}
LETTERS = "letter's FedHAW"
SGD: dict[str, Any] = {"batch": 32}
MNIST = {f"SGD {eta:g}": SGD | {"eta": eta} for eta in (0.001, 0.01, 0.1)} | {
    "Adam 0.001": SGD | {"client_update": "adam", "eta": 1e-3},
    "linear, Adam 0.0005": SGD | {"client_update": "adam", "eta": 5e-4, "model": "logistic"},
    "10 of 100 clients, SGD 0.05": SGD
    | {"eta": 0.05, "clients": 100, "cohort": 10, "split": "dirichlet"},
}
WISDM = {"model": "mlp-64", "split": "holders", "clients": 36, "eta": 0.05, "batch": 16}
LONG = {f"SGD {eta:g}": SGD | {"eta": eta} for eta in (0.1, 0.15, 0.05, 0.01, 0.001)} | {
    "SGD 0.1, weight decay": SGD | {"client_update": "sgd-wd", "eta": 0.1},
    "Adam 0.001": SGD | {"client_update": "adam", "eta": 1e-3},
    "Adam 0.0001": SGD | {"client_update": "adam", "eta": 1e-4},
}
LOSSES = {"": None, ", p_e 0.8": 0.8}


def play(out: Path, rule: Rule[Any], name: str, data: str | Dataset, **settings: Any) -> Any:
    """The accuracies of one run in %, (evaluations,), and its notes."""
    folder = out / name.replace(" ", "-").replace("/", "-").replace(",", "")
    history = fedhaw.simulate(
        rule, data, engine="stacked", out=folder, checkpoint_every=100, **settings
    )
    notes = [f"round {r.round}: {r.note}" for r in history.records if r.note]
    accuracy = 100 * np.asarray(history.accuracy)
    return accuracy[~np.isnan(accuracy)], notes


def cell(paths: list[Any]) -> str:
    """The end, and the average over rounds, over seeds."""
    return f"{np.mean([p[-3:] for p in paths]):.1f} ({np.mean(np.concatenate(paths)):.1f})"


def kinds(args: argparse.Namespace) -> None:
    """The table `kinds`."""
    federations: dict[str, tuple[str, dict[str, Any]]] = {
        f"{name}{loss}": ("mnist-5k", settings | {"uplink": rate})
        for loss, rate in LOSSES.items()
        for name, settings in MNIST.items()
    }
    if args.wisdm:
        for loss, rate in LOSSES.items():
            federations[f"WISDM by person{loss}"] = args.wisdm, WISDM | {"uplink": rate}
    print("| federation |", " | ".join(RULES), "|")
    for name, (data, settings) in federations.items():
        if args.only in name:
            cells = [
                cell([
                    play(args.out, rule, f"kinds/{name}/{title}/{seed}", data,
                         rounds=40, evaluate_every=5, seed=seed, **settings)[0]
                    for seed in range(args.seeds)
                ])
                for title, rule in RULES.items()
            ]  # fmt: skip
            print(f"| {name} |", " | ".join(cells), "|", flush=True)


def long(args: argparse.Namespace) -> None:
    """The table `long`."""
    chosen = [title for title in (*RULES, LETTERS) if title in args.rules.split(",")]
    print("| federation | seed |", " | ".join(f"{title}, end | deepest" for title in chosen), "|")
    for seed in range(args.seeds):
        for (name, settings), alpha, (loss, rate) in product(
            LONG.items(), (0.1, 1.0), LOSSES.items()
        ):
            label = f"{name}, alpha {alpha:g}{loss}"
            if args.only in label:
                rules = RULES | {LETTERS: letters_rule(float(settings["eta"]), rate)}
                paths = {
                    title: play(args.out, rules[title], f"long/{label}/{title}/{seed}", "mnist-5k",
                                rounds=args.rounds, evaluate_every=5, seed=seed, uplink=rate,
                                alpha=alpha, **settings)[0]
                    for title in chosen
                }  # fmt: skip
                bar = paths.get("FedAvg", np.zeros(1))
                counted = np.maximum.accumulate(bar > 60)
                cells = [
                    f"{path[-3:].mean():.1f} | {(path - bar)[counted].min(initial=np.inf):.1f}"
                    for path in paths.values()
                ]
                print(f"| {label} | {seed} |", " | ".join(cells), "|", flush=True)


def letters_rule(eta: float, loss_rate: float | None) -> Rule[Any]:
    """The letter's rule with the letter's rates for MNIST."""
    return fedhaw.FedHAW(eta=eta, eta_gamma=1e-4 if loss_rate else 1e-3, eta_lambda=1e-2)


def poisoned(data: Dataset, parts: list[Any], bad: tuple[int, ...], kind: str) -> Dataset:
    """The data set with the bad clients' samples spoilt."""
    random, x, y = np.random.default_rng(0), data.x_train.copy(), data.y_train.copy()
    rows = np.concatenate([parts[k] for k in bad]) if bad else np.zeros(0, np.int64)
    match kind:
        case "labels":
            y[rows] = random.integers(0, data.classes, len(rows))
        case "flipped":
            y[rows] = data.classes - 1 - y[rows]
        case "inputs":
            x[rows] = random.integers(0, 256, x[rows].shape)
    return replace(data, name=f"{data.name}-{kind}", x_train=x, y_train=y, whole_labels=None)


def trust(args: argparse.Namespace) -> None:
    """The table `trust`."""
    data = load("mnist-5k", None)
    multiples = {"update x -1": -1.0, "update x -10": -10.0, "update x 100": 100.0, "free": 0.0}
    titles = ["without them: FedAvg", "FedHAW-auto", "with them: FedAvg", "FedAvgM 0.9"]
    print("| bad |", " | ".join([*titles, "median", "multi-Krum", "FedHAW-auto"]), "| note |")
    for kind in ("none", "labels", "inputs", "flipped", *multiples):
        for alpha, how in ((1.0, "letter"), (0.1, "letter"), (1.0, "iid")):
            parts = split(data, how, 10, alpha=alpha, seed=None)
            for count in (0,) if kind == "none" else (1, 3):
                label = f"{count} {kind}, {'IID' if how == 'iid' else f'alpha {alpha:g}'}"
                if args.only not in label:
                    continue
                bad = BAD_CLIENTS.get(count, ())
                spoilt = poisoned(data, parts, bad, kind)
                good = [part for k, part in enumerate(parts) if k not in bad]
                factor = multiples.get(kind, 1.0)
                common = SGD | {"eta": 0.01, "rounds": 60, "evaluate_every": 5}
                cells = [
                    cell([play(args.out, rule, f"trust/{label}/clean-{title}", data, split=good,
                               **common)[0]])
                    for title, rule in RULES.items() if title != "FedAvgM 0.9"
                ]  # fmt: skip
                rules = {
                    "FedAvg": RULES["FedAvg"], "FedAvgM": RULES["FedAvgM 0.9"],
                    "median": fedhaw.Median(), "multi-Krum": fedhaw.MultiKrum(f=count),
                    "FedHAW-auto": RULES["FedHAW-auto"],
                }  # fmt: skip
                for title, rule in rules.items():
                    attacked = Attacked(rule, bad, factor)
                    path, notes = play(
                        args.out, attacked, f"trust/{label}/{title}", spoilt, split=parts, **common
                    )
                    cells.append(cell([path]))
                print(f"| {label} |", " | ".join(cells), "|", "; ".join(notes), "|", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["kinds", "long", "trust"])
    parser.add_argument("--out", type=Path, default=Path("fedhaw-runs/default-rule"))
    parser.add_argument("--only", default="", help="only federations with this text in their name")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1000, help="of the table `long`")
    parser.add_argument("--wisdm", default=None)
    parser.add_argument("--rules", default=",".join(RULES), help="of the table `long`")
    arguments = parser.parse_args()
    {"kinds": kinds, "long": long, "trust": trust}[arguments.table](arguments)

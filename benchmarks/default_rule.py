"""Is the default rule safe, fast and a judge of clients? Tables beside the rules a reviewer names.

    python benchmarks/default_rule.py kinds cifar10 long long-kinds trust absent own unseen later
        last [--scale small] [--jobs N] [--out FOLDER] [--only TEXT] [--seeds N]
        [--rules TITLES] [--whole] [--wisdm FILE] [--dogs FOLDER] [--cifar10 FOLDER]
        [--unseen FOLDER] [--later FOLDER] [--last FOLDER] [--show] [--save]

- kinds: federations of many kinds, without and with four sorts of losses: 200 rounds, of which the
  first 40 are a table of their own, with the ablations of the default, the grids of rules that have
  rates, and FedLAW, which has data of the server's own. `--whole` gives every rule as many rounds
  as the default.
- cifar10: the same with a small CNN, where all but FedAvg, FedAvgM and the default have these 40
  alone, and with a narrow ResNet, where every rule has.
- long: a thousand rounds, of which the first 40 and 200 are tables of their own; with the deepest
  fall below FedAvg's accuracy of the same round once FedAvg has passed 60 %.
- long-kinds: the same for FedAvg, FedAvgM and the default, in those of the many kinds that are not
  among the long ones.
- trust: some of ten clients are bad, 60 rounds.
- absent: the same where uploads are lost, or ten of thirty clients take part, 200 rounds.
- own: honest clients that alone hold a class, 200 rounds.
- unseen: data sets beside those that the rule was first made on, every .npz file of a folder; some
  honest and some bad clients, 200 rounds.
- later: the same with data sets that had no part in making the rule's version 8.
- last: the same with data sets that had no part in making version 9.

The first six are about 1,700,000 rounds, of which two cores do 1,500 to 3,500 a minute, but for
cifar10's, of which a core does 15 to 65. `--scale
small` is less than half of that, with two seeds instead of three: of the long runs those at
four of eight client updates, of the bad clients three of ten but not one, and no IID split. `--jobs
2` runs two at a time. Runs that are in FOLDER already are not repeated, and those that were stopped
go on, so it can be stopped at any time; all runs of a seed come before the next seed's. `--show`
runs nothing and prints what is there. `--save` writes results/default_rule_TABLE.txt, and what the
table is made of, the accuracies of every run, to results/default_rule_TABLE.jsonl.gz: runs that are
in there, of the rule as it is now, are neither repeated.

A cell is the accuracy at the end in %, averaged over the last three evaluations, and in parentheses
the average over all rounds, over the seeds that were run. Below each table stand ranks, and
differences with errors (`standings.py`).
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import standings
from federations import (
    ABLATIONS,
    BRIEF,
    DEFAULT,
    GRIDS,
    HORIZONS,
    MISUSED,
    SEEDS,
    WITH_PROXY,
    Cell,
    absent,
    cifar10,
    kinds,
    long,
    long_kinds,
    long_trust,
    own,
    trust,
    unseen,
)
from kept_curves import Curve, KeptCurves
from numpy.typing import NDArray
from record import RESULTS, Record

import fedhaw
from fedhaw.experiments.backends import processes
from fedhaw.rules.threads import limit_cores
from fedhaw.simulation.run import RuleSource

EVERY = 5


@dataclass(frozen=True)
class Evidence:
    """The runs of a table.

    Attributes:
        table: its name.
        out: the folder of all runs.
        titles: the rules that are asked for; none for all.
        seeds: how many.
        whole: whether every rule is run for all rounds.
        kept: the runs that were kept.
    """

    table: str
    out: Path
    titles: tuple[str, ...]
    seeds: int
    whole: bool
    kept: KeptCurves

    def rules(self, cell: Cell) -> dict[str, RuleSource]:
        """Those of a cell that are asked for."""
        return {t: r for t, r in cell.rules.items() if not self.titles or t in self.titles}

    def rounds(self, cell: Cell, title: str) -> int:
        """How many rounds a rule is run."""
        return cell.rounds if self.whole else cell.rounds_of(title, self.table)

    def folder(self, cell: Cell, title: str, seed: int) -> Path:
        """Where a run lies."""
        name = f"{self.table}/{cell.place(title)}/{title}/{seed}"
        return self.out / name.replace(" ", "-").replace("/", "-").replace(",", "")

    def run(self, cell: Cell, title: str, seed: int) -> None:
        """A run, or the rest of it."""
        changes = cell.clean if title.startswith("clean") else {}
        settings = {"data": cell.data, "engine": "stacked", **cell.settings, **changes}
        fedhaw.simulate(
            cell.rules[title], settings.pop("data"), seed=seed,
            rounds=self.rounds(cell, title), evaluate_every=EVERY, checkpoint_every=100,
            out=self.folder(cell, title, seed), **settings,
        )  # fmt: skip

    def curve(self, cell: Cell, title: str, seed: int) -> Curve | None:
        """What is there of a run, in its folder or else among those kept."""
        folder, rule = self.folder(cell, title, seed), cell.rules[title]
        if (folder / "history.jsonl").exists():
            curve = Curve.of(fedhaw.History.read(folder))
            return curve if curve.is_of(rule) else None
        return self.kept.find(folder.name, rule)

    def found(self, cell: Cell, title: str, rounds: int) -> dict[int, Curve]:
        """The runs that came at least so far, by seed."""
        curves = {seed: self.curve(cell, title, seed) for seed in range(self.seeds)}
        return {seed: curve for seed, curve in curves.items() if curve and curve.rounds >= rounds}


def accuracies(curve: Curve, rounds: int) -> NDArray[np.float64]:
    """(evaluations,) in %, of the first rounds of a run."""
    return np.array([100 * value for t, value in curve.accuracies.items() if t < rounds])


def end(curve: Curve, rounds: int) -> float:
    """The accuracy at the end in %, averaged over the last three evaluations."""
    return float(accuracies(curve, rounds)[-3:].mean())


def show(record: Record, evidence: Evidence, cells: list[Cell], rounds: int) -> None:
    """A table of what was run, and its standings."""
    rows, scores = [], {}
    for cell in cells:
        runs = {title: evidence.found(cell, title, rounds) for title in cell.rules}
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
    if beside := list(_beside_fedavg([runs for _, runs, _ in rows], columns, rounds)):
        record.table(
            f"Every run beside FedAvg's of the same seed: {evidence.table}, {rounds} rounds",
            ("rule", "runs", "ends from", "to", "deepest"),
            beside,
        )
    proper = _chosen(scores, lambda title: title not in {*BRIEF, MISUSED})
    sorts = {c.name: _sort(c) for c in cells}
    where: dict[str, standings.Scores] = {}
    for group, chosen in ({"": proper} | _of_most_seeds(proper)).items():
        for sort in ("", "without losses", "with losses", "with bad clients"):
            where[", ".join(filter(None, (group, sort))) or "all"] = {
                name: own for name, own in chosen.items() if not sort or sorts[name] == sort
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


def _sort(cell: Cell) -> str:
    """What makes a federation hard."""
    if cell.bad:
        return "with bad clients"
    return "with losses" if "uplink" in cell.settings else "without losses"


def _chosen(scores: standings.Scores, wanted: Callable[[str], bool]) -> standings.Scores:
    """The scores of some of the rules."""
    return {
        cell: {title: own for title, own in rules.items() if wanted(title)}
        for cell, rules in scores.items()
    }


def _of_most_seeds(scores: standings.Scores) -> dict[str, standings.Scores]:
    """The rules with more seeds than others have, where there are such: all ranks are of fewer."""
    seeds: dict[str, int] = {}
    for rules in scores.values():
        for title, runs in rules.items():
            seeds[title] = min(len(runs), seeds.get(title, len(runs)))
    most = max(seeds.values())
    full = {title for title, count in seeds.items() if count == most}
    name = f"those with {most} seeds"
    return {name: _chosen(scores, full.__contains__)} if full < seeds.keys() else {}


def _with_grids(rules: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """The scores of one federation, with those of each grid's best where all of it was run."""
    best = {
        name: max((rules[title] for title in grid), key=lambda own: sum(own.values()) / len(own))
        for name, grid in GRIDS.items()
        if all(title in rules for title in grid)
    }
    return rules | best


def _entry(runs: Mapping[int, Curve], rounds: int) -> str:
    if not runs:
        return "-"
    ends = np.mean([end(run, rounds) for run in runs.values()])
    return f"{ends:.1f} ({np.mean([accuracies(run, rounds) for run in runs.values()]):.1f})"


def _beside_fedavg(
    cells: Sequence[Mapping[str, Mapping[int, Curve]]], titles: Sequence[str], rounds: int
) -> Iterator[tuple[object, ...]]:
    """For each rule, how far its runs end and fall below FedAvg's, and end above them, at most."""
    for title in titles:
        pairs = [
            (runs[title][seed], runs["FedAvg"][seed])
            for runs in cells
            if title != "FedAvg" and title in runs and "FedAvg" in runs
            for seed in runs[title].keys() & runs["FedAvg"].keys()
        ]
        if pairs:
            ends = [end(own, rounds) - end(bar, rounds) for own, bar in pairs]
            fall = min(_deepest(own, bar, rounds) for own, bar in pairs)
            deepest = f"{fall:+.1f}" if np.isfinite(fall) else "-"  # FedAvg never passed 60 %
            yield title, len(pairs), f"{min(ends):+.1f}", f"{max(ends):+.1f}", deepest


def _deepest(own: Curve, bar: Curve, rounds: int) -> float:
    """The deepest fall below another curve once that has passed 60 %."""
    ours, theirs = accuracies(own, rounds), accuracies(bar, rounds)
    return float((ours - theirs)[np.maximum.accumulate(theirs > 60)].min(initial=np.inf))


def _remarks(runs: Mapping[str, Mapping[int, Curve]], rounds: int) -> str:
    """How far the default fell below FedAvg on the way, and whom it stopped trusting."""
    own, bar, said = runs.get(DEFAULT, {}), runs.get("FedAvg", {}), []
    falls = [_deepest(own[seed], bar[seed], rounds) for seed in own.keys() & bar.keys()]
    if falls and np.isfinite(min(falls)):
        said.append(f"deepest {min(falls):+.1f}")
    said += [
        f"seed {seed}, round {t}: {note}"
        for seed, run in own.items()
        for t, note in run.notes.items()
        if t < rounds
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
    parser.add_argument("tables", nargs="+", choices=list(HORIZONS))
    parser.add_argument("--scale", choices=list(SEEDS), default="full")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time")
    parser.add_argument("--out", type=Path, default=Path("fedhaw-runs/default-rule"))
    parser.add_argument("--only", default="", help="only federations with this text in their name")
    parser.add_argument("--seeds", type=int, help="default: 3, and 2 of the small scale")
    parser.add_argument("--rules", default="", help="titles with commas between; default: all")
    parser.add_argument("--whole", action="store_true", help="all rounds for every rule")
    parser.add_argument("--wisdm", default=None, help="wisdm.npz, for the tables of kinds")
    parser.add_argument("--dogs", default=None, help="folder of Dogs' features, for the same")
    parser.add_argument("--cifar10", default=None, help="folder of CIFAR-10, for that table")
    parser.add_argument("--unseen", type=Path, help="folder of .npz files, for that table")
    parser.add_argument("--later", type=Path, help="the same for the table later")
    parser.add_argument("--last", type=Path, help="the same for the table last")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--save", action="store_true", help="write tables and curves to results/")
    args = parser.parse_args()
    small, seeds = args.scale == "small", args.seeds or SEEDS[args.scale]
    titles = tuple(filter(None, args.rules.split(",")))
    for table in ("cifar10", "unseen", "later", "last"):
        if table in args.tables and not getattr(args, table):
            parser.error(f"the table {table} needs --{table} FOLDER")
    makers: dict[str, Callable[[], Iterator[Cell]]] = {
        "kinds": lambda: kinds(args.wisdm, args.dogs), "cifar10": lambda: cifar10(args.cifar10),
        "long": lambda: long(small),
        "long-kinds": lambda: long_kinds(args.wisdm, args.dogs),
        "trust": lambda: trust(small), "absent": absent, "long-trust": long_trust, "own": own,
        "unseen": lambda: unseen(args.unseen), "later": lambda: unseen(args.later),
        "last": lambda: unseen(args.last),
    }  # fmt: skip
    tables = {}
    for table in args.tables:
        kept = KeptCurves.read(RESULTS / f"default_rule_{table}.jsonl.gz")
        evidence = Evidence(table, args.out, titles, seeds, args.whole, kept)
        tables[table] = evidence, [c for c in makers[table]() if args.only in c.name]
    if not args.show:
        runs = [
            (evidence, cell, title, seed)
            for seed in range(seeds)
            for evidence, cells in tables.values()
            for cell in cells
            for title in evidence.rules(cell)
            if seed not in evidence.found(cell, title, evidence.rounds(cell, title))
        ]
        run_side_by_side(runs, args.jobs)
    for table, (evidence, cells) in tables.items():
        with Record(f"default_rule_{table}", args.save) as record:
            for rounds in HORIZONS[table]:
                show(record, evidence, cells, rounds)
        if args.save:
            evidence.kept.write({
                evidence.folder(cell, title, seed).name: curve
                for cell in cells
                for title in cell.rules
                for seed in range(seeds)
                if (curve := evidence.curve(cell, title, seed))
            })  # fmt: skip


if __name__ == "__main__":
    main()

"""`fedhaw reproduce`: the letter's tables and figure, and the evidence for what goes beyond it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from fedhaw.cli import options as flag
from fedhaw.cli.exits import interruptible
from fedhaw.data.scales import INPUT_SCALES
from fedhaw.errors import shown
from fedhaw.settings import SWEEP_SETTINGS

if TYPE_CHECKING:
    from fedhaw.experiments.letter import DataName, LetterConditions
    from fedhaw.experiments.sharing import Sharing
    from fedhaw.reports import Table

    Done: TypeAlias = tuple[list[tuple[Table, tuple[Path, ...]]], dict[str, object]]
    """The tables that were made, each with its files, and the same for a script."""

EXAMPLES = flag.examples(
    "fedhaw reproduce heterogeneous --data mnist --data-dir data --seeds 3",
    "fedhaw reproduce errors --data cifar10 --data-dir data --scale small",
    "fedhaw reproduce figure --data-dir data --scale medium --rules fedavg,fedhaw",
    "fedhaw reproduce server-time",
    "fedhaw reproduce all --device cuda --out letter",
    "fedhaw reproduce no-tuning --data mnist-5k --scale small",
    "fedhaw reproduce any-client --data-dir data --scale small",
    "fedhaw reproduce any-client --scale small --kept docs/reproduction",
)

Name = TypeVar("Name", bound=str)

BEYOND = ("no-tuning", "any-client")
"""What is not of the letter, and not among all."""

TARGETS = ("heterogeneous", "errors", "fedprox", "figure", "server-time", "all", *BEYOND)


def complete_targets(incomplete: str) -> list[str]:
    """Targets that begin so."""
    return [target for target in TARGETS if target.startswith(incomplete)]


@flag.with_settings("data_dir", "engine", "workers", "device", *SWEEP_SETTINGS)
def reproduce(
    target: Annotated[
        str, typer.Argument(help=" | ".join(TARGETS), autocompletion=complete_targets)
    ],
    given: flag.Given,
    data: Annotated[
        str | None,
        flag.option(
            "mnist, cifar10 or dogs, or several with commas. Default all three (figure: cifar10, "
            "as in the letter). no-tuning has mnist-5k, too; any-client is of mnist.",
            flag.FEDERATION,
        ),
    ] = None,
    scale: Annotated[
        str,
        flag.option(
            "full: the letter's settings. medium: CIFAR-10 in ten minutes a run. small: fewer "
            "rounds, part of the data, a narrower ResNet; tiny: only to see it work. Every table "
            "and picture says so. `--scale` alone means small.",
            flag.TRAINING,
            show_default=True,
        ),
    ] = "full",
    input_scale: Annotated[
        str | None,
        flag.option(
            f"{' or '.join(INPUT_SCALES)}. Default both for mnist, matched for cifar10.",
            flag.TRAINING,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        flag.option(
            "How many seeds, counted from 0, or which: 0,4,5. Default 3 (no-tuning: 5 to 9 where "
            "a run is quick, else 5 to 7).",
            flag.TRAINING,
        ),
    ] = None,
    rules: Annotated[
        str | None,
        flag.option(
            "The rows: the letter's rules, any other of fedhaw's, or your own, such as "
            "fedavg,fedhaw,file.py:MyRule. Default the letter's and FedHAW-auto.",
            flag.TRAINING,
            autocompletion=flag.complete_rules,
        ),
    ] = None,
    out: Annotated[
        Path,
        flag.option(
            "Folder for runs and tables; the same command goes on there where it stopped.",
            show_default=True,
        ),
    ] = Path("fedhaw-runs/reproduce"),
    kept: Annotated[
        Path | None, flag.option("Folder of kept histories to make the tables of; nothing is run.")
    ] = None,
    as_json: flag.Json = False,
) -> None:
    """Reproduce the letter's tables and figure, ours beside its number in every cell.

    Each cell is run over several seeds and gets a verdict: the letter's number is within the spread
    of ours, or ours is above or below it. Finished runs are not run again.

    no-tuning and any-client are not of the letter and not among all: FedHAW-auto beside tuned and
    untuned rules, and FedHAW over SCAFFOLD, FedDyn, FedNova and others.
    """
    from fedhaw.cli.output import print_json, print_table
    from fedhaw.experiments.compare import parse_seeds
    from fedhaw.experiments.letter import RUN_SIZES, LetterConditions

    _one_of("target", target, TARGETS)
    if input_scale is not None and target in BEYOND:
        raise typer.BadParameter(f"{target} is always matched", param_hint="--input-scale")
    if rules is not None and target in (*BEYOND, "server-time"):
        raise typer.BadParameter(f"{target} is always of all its rules", param_hint="--rules")
    chosen = tuple(name.strip() for name in (rules or "").split(",") if name.strip())
    if rules is not None and not chosen:
        raise typer.BadParameter("it names no rule; leave it out for all", param_hint="--rules")
    unheard = {"--data": data, "--seeds": seeds, "--input-scale": input_scale}
    unheard["--scale"] = None if scale == "full" else scale
    if target == "server-time" and (named := [flag for flag, value in unheard.items() if value]):
        raise typer.BadParameter("server-time has no such setting", param_hint=named[0])
    if kept is not None and target in ("no-tuning", "server-time", "all"):
        raise typer.BadParameter(f"{target} is not made of kept histories", param_hint="--kept")
    names = _data(data, target)
    sharing, given = flag.sharing_of(given)
    conditions = LetterConditions(
        _one_of("--scale", scale, RUN_SIZES),
        None if input_scale is None else _one_of("--input-scale", input_scale, INPUT_SCALES),
        tuple(given.items()),
        kept,
        chosen,
    )
    numbers = None if seeds is None else parse_seeds(seeds)
    if target in BEYOND:
        shown, done = _beyond(target, names, numbers, conditions, out, sharing)
    else:
        shown, done = _of_the_letter(target, names, numbers, conditions, out, sharing)
    if as_json:
        print_json(done)
        return
    for table, paths in shown:
        print_table(table)
        print(f"table    {paths[0]} (also .csv and .tex)")
        if picture := next((path for path in paths if path.name == "accuracy.png"), None):
            print(f"picture  {picture} (also .pdf)")
        print()


def _of_the_letter(
    target: str,
    data: "tuple[DataName, ...]",
    seeds: tuple[int, ...] | None,
    conditions: "LetterConditions",
    out: Path,
    sharing: "Sharing",
) -> "Done":
    from fedhaw.cli.output import to_stderr
    from fedhaw.cli.progress import watching
    from fedhaw.experiments.letter import TABLE_NAMES
    from fedhaw.experiments.reproduce import ReproducePlan
    from fedhaw.experiments.reproduce import reproduce as run
    from fedhaw.experiments.server_time import server_time_table, server_times
    from fedhaw.reports import write_table

    tables = tuple(name for name in TABLE_NAMES if target in (name, "all"))
    plan = ReproducePlan(tables, data, seeds or (0, 1, 2), conditions, out)
    with watching(plan.jobs, out) as watch:
        finished = list(run(plan, watch, sharing))
    shown = [(one.shown(), one.paths) for one in finished]
    done: dict[str, object] = {"tables": [one.described() for one in finished]}
    if target in ("server-time", "all"):
        device = str(dict(conditions.changes).get("device", "cpu"))
        with interruptible(out), to_stderr().status("Timing the rules"):
            timings = server_times(device, out / "server-time.json")
        table = server_time_table(timings)
        shown.append((table, write_table(out / "server-time", table)))
        done["server_time"] = {t.rule: t.median for t in timings if t.backend == "torch"}
    return shown, done


def _beyond(
    target: str,
    data: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    conditions: "LetterConditions",
    out: Path,
    sharing: "Sharing",
) -> "Done":
    from fedhaw.cli.progress import watching
    from fedhaw.experiments.any_client import AnyClientPlan, AnyClientResult, any_client
    from fedhaw.experiments.no_tuning import NoTuningPlan, NoTuningResult, no_tuning

    result: NoTuningResult | AnyClientResult
    if target == "no-tuning":
        cells = NoTuningPlan(data, conditions.size, out, seeds, conditions.changes)
        with watching(cells.jobs, out) as watch:
            result = no_tuning(cells, watch, sharing)
    else:
        plan = AnyClientPlan(seeds or (0, 1, 2), conditions, out)
        with watching(plan.jobs, out) as watch:
            result = any_client(plan, watch, sharing)
    each = zip(result.tables, result.paths[::3], strict=True)
    return [(table, (path,)) for table, path in each], result.described()


def _data(given: str | None, target: str) -> Any:
    from fedhaw.experiments import any_client
    from fedhaw.experiments.letter import DATA_NAMES
    from fedhaw.experiments.no_tuning import data_names

    own = {"no-tuning": data_names(), "any-client": (any_client.DATA,)}
    known = own.get(target, DATA_NAMES)
    if given is None:
        return ("cifar10",) if target == "figure" else known
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        _one_of("--data", name, known)
    return names


def _one_of(what: str, value: str, known: tuple[Name, ...]) -> Name:
    for name in known:
        if name == value:
            return name
    raise typer.BadParameter(f"{shown(value)} is not one of {', '.join(known)}", param_hint=what)

"""`fedhaw reproduce`: the letter's tables and figure, and the evidence for what goes beyond it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedhaw.cli import options as flag
from fedhaw.cli.compare import how_to_go_on
from fedhaw.cli.exits import interruptible
from fedhaw.data.scales import INPUT_SCALES
from fedhaw.errors import shown
from fedhaw.settings import SWEEP_SETTINGS

if TYPE_CHECKING:
    from fedhaw.experiments.any_client import AnyClientPlan
    from fedhaw.experiments.no_tuning import NoTuningPlan
    from fedhaw.experiments.reproduce import ReproducePlan
    from fedhaw.experiments.sharing import Sharing

EXAMPLES = """Examples:

  fedhaw reproduce heterogeneous --data mnist --data-dir data --seeds 3

  fedhaw reproduce errors --data cifar10 --data-dir data --scale small

  fedhaw reproduce server-time

  fedhaw reproduce all --device cuda --out letter

  fedhaw reproduce no-tuning --data mnist-5k --scale small

  fedhaw reproduce any-client --data-dir data --scale small
"""

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
        typer.Option(
            help="mnist, cifar10 or dogs, or several with commas. Default all three "
            "(figure: cifar10, as in the letter). no-tuning has mnist-5k, too; any-client is "
            "of mnist.",
            rich_help_panel=flag.FEDERATION,
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="full: the letter's settings. small: fewer rounds, part of the data, a narrower "
            "ResNet; tiny: only to see it work. Every table and picture says so. `--scale` alone "
            "means small.",
            rich_help_panel=flag.TRAINING,
        ),
    ] = "full",
    input_scale: Annotated[
        str | None,
        typer.Option(
            help=f"{' or '.join(INPUT_SCALES)}. Default both for mnist, matched for cifar10.",
            rich_help_panel=flag.TRAINING,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="How many seeds, counted from 0, or which: 0,4,5. Default 3 (no-tuning: 5 to 9 "
            "where a run is quick, else 5 to 7).",
            rich_help_panel=flag.TRAINING,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for runs and tables; the same command goes on there where it stopped.",
            rich_help_panel=flag.OUTPUT,
        ),
    ] = Path("fedhaw-runs/reproduce"),
    as_json: flag.Json = False,
) -> None:
    """Reproduce the letter's tables and figure, ours beside its number in every cell.

    Each cell is run over several seeds and gets a verdict: the letter's number is within the spread
    of ours, or ours is above or below it. Finished runs are not run again.

    no-tuning and any-client are not of the letter and not among all: FedHAW-auto beside tuned and
    untuned rules, and FedHAW over SCAFFOLD, FedDyn, FedNova and others.
    """
    from fedhaw.experiments.any_client import AnyClientPlan
    from fedhaw.experiments.compare import parse_seeds
    from fedhaw.experiments.letter import RUN_SIZES, TABLE_NAMES, LetterConditions
    from fedhaw.experiments.no_tuning import NoTuningPlan
    from fedhaw.experiments.reproduce import ReproducePlan

    _one_of("target", target, TARGETS)
    if input_scale is not None and target in BEYOND:
        raise typer.BadParameter(f"{target} is always matched", param_hint="--input-scale")
    of_no_table = dict.fromkeys(("server-time", *BEYOND), ())
    tables: Any = {"all": TABLE_NAMES, **of_no_table}.get(target, (target,))
    names = _data(data, target)
    sharing, given = flag.sharing_of(given)
    changes = tuple(given.items())
    conditions = LetterConditions(
        _one_of("--scale", scale, RUN_SIZES),
        None if input_scale is None else _one_of("--input-scale", input_scale, INPUT_SCALES),
        changes,
    )
    plan = ReproducePlan(tables, names, parse_seeds(seeds or "3"), conditions, out)
    done: dict[str, Any] = {"tables": []}
    with interruptible(how_to_go_on(out)):
        if tables:
            done["tables"] = _tables(plan, sharing, as_json)
        if target in ("server-time", "all"):
            done["server_time"] = _server_time(str(given.get("device", "cpu")), out, as_json)
        if target == "no-tuning":
            own_seeds = None if seeds is None else parse_seeds(seeds)
            cells = NoTuningPlan(names, conditions.size, out, own_seeds, changes)
            done = _no_tuning(cells, sharing, as_json)
        if target == "any-client":
            done = _any_client(AnyClientPlan(plan.seeds, conditions, out), sharing, as_json)
    if as_json:
        from fedhaw.cli.output import print_json

        print_json(done)


def _tables(plan: "ReproducePlan", sharing: "Sharing", as_json: bool) -> list[dict[str, Any]]:
    from fedhaw.cli.output import print_table, to_stderr
    from fedhaw.cli.progress import SweepProgress
    from fedhaw.experiments.reproduce import reproduce as run

    with SweepProgress(plan.jobs, to_stderr()) as watch:
        finished = list(run(plan, watch, sharing))
    if not as_json:
        for one in finished:
            print_table(one.shown())
            picture = next((path for path in one.paths if path.name == "accuracy.png"), None)
            print(f"table    {one.paths[0]} (also .tex and .csv)")
            if picture is not None:
                print(f"picture  {picture} (also .pdf)")
            print()
    return [one.described() for one in finished]


def _server_time(device: str, out: Path, as_json: bool) -> dict[str, Any]:
    from fedhaw.cli.output import print_table, to_stderr
    from fedhaw.experiments.server_time import server_time_table, server_times
    from fedhaw.files import write_text
    from fedhaw.reports import to_csv, to_latex, to_markdown

    with to_stderr().status("Timing the rules"):
        timings = server_times(device, out / "server-time.json")
    table = server_time_table(timings)
    for ending, written in (("md", to_markdown), ("csv", to_csv), ("tex", to_latex)):
        write_text(out / f"server-time.{ending}", written(table))
    if not as_json:
        print_table(table)
        print(f"table    {out / 'server-time.md'} (also .csv and .tex)")
    return {timing.rule: timing.median for timing in timings}


def _no_tuning(plan: "NoTuningPlan", sharing: "Sharing", as_json: bool) -> dict[str, Any]:
    from fedhaw.cli.output import print_table, to_stderr
    from fedhaw.cli.progress import SweepProgress
    from fedhaw.experiments.no_tuning import no_tuning

    with SweepProgress(plan.jobs, to_stderr()) as watch:
        evidence = no_tuning(plan, watch, sharing)
    if not as_json:
        for table, path in zip(evidence.tables, evidence.paths[::3], strict=True):
            print_table(table)
            print(f"table    {path} (also .csv and .tex)\n")
    return evidence.described()


def _any_client(plan: "AnyClientPlan", sharing: "Sharing", as_json: bool) -> dict[str, Any]:
    from fedhaw.cli.output import print_table, to_stderr
    from fedhaw.cli.progress import SweepProgress
    from fedhaw.experiments.any_client import any_client

    with SweepProgress(plan.jobs, to_stderr()) as watch:
        result = any_client(plan, watch, sharing)
    if not as_json:
        for table, path in zip(result.tables, result.paths[::3], strict=True):
            print_table(table)
            print(f"table    {path} (also .csv and .tex)\n")
    return result.described()


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

"""`fedhaw reproduce`: the letter's tables and its figure, ours beside the letter's numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhaw.cli import options as flag
from fedhaw.cli.compare import how_to_go_on
from fedhaw.cli.exits import interruptible

if TYPE_CHECKING:
    from fedhaw.experiments.reproduce import ReproducePlan

EXAMPLES = """Examples:

  fedhaw reproduce heterogeneous --data mnist --data-dir data --seeds 3

  fedhaw reproduce errors --data cifar10 --data-dir data --scale small

  fedhaw reproduce server-time

  fedhaw reproduce all --device cuda --out letter
"""

TARGETS = ("heterogeneous", "errors", "fedprox", "figure", "server-time", "all")


def complete_targets(incomplete: str) -> list[str]:
    """Targets that begin so."""
    return [target for target in TARGETS if target.startswith(incomplete)]


def reproduce(
    target: Annotated[
        str, typer.Argument(help=" | ".join(TARGETS), autocompletion=complete_targets)
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="mnist, cifar10 or dogs, or several with commas. Default all three "
            "(figure: cifar10, as in the letter).",
            rich_help_panel=flag.FEDERATION,
        ),
    ] = None,
    data_dir: flag.DataDir = None,
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
            help="matched or authors. Default both for mnist, matched for cifar10.",
            rich_help_panel=flag.TRAINING,
        ),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(
            help="How many seeds, counted from 0, or which: 0,4,5.", rich_help_panel=flag.TRAINING
        ),
    ] = "3",
    engine: flag.Engine = None,
    workers: flag.Workers = None,
    device: flag.Device = None,
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
    """
    from fedhaw.experiments.compare import parse_seeds
    from fedhaw.experiments.letter import TABLE_NAMES, Setting
    from fedhaw.experiments.reproduce import ReproducePlan

    _check("target", target, TARGETS)
    _check("--scale", scale, ("full", "small", "tiny"))
    if input_scale is not None:
        _check("--input-scale", input_scale, ("matched", "authors"))
    tables: Any = TABLE_NAMES if target == "all" else (target,) if target != "server-time" else ()
    changes = {
        "data_dir": None if data_dir is None else str(data_dir),
        "device": device,
        "engine": engine,
        "workers": workers,
    }
    setting = Setting(
        scale,  # type: ignore[arg-type]  # checked above
        input_scale,  # type: ignore[arg-type]
        tuple((key, value) for key, value in changes.items() if value is not None),
    )
    plan = ReproducePlan(tables, _data(data, target), parse_seeds(seeds), setting, out)
    done: dict[str, Any] = {"tables": []}
    with interruptible(how_to_go_on(out)):
        if tables:
            done["tables"] = _tables(plan, as_json)
        if target in ("server-time", "all"):
            done["server_time"] = _server_time(device or "cpu", out, as_json)
    if as_json:
        from fedhaw.cli.output import print_json

        print_json(done)


def _tables(plan: "ReproducePlan", as_json: bool) -> list[dict[str, Any]]:
    from fedhaw.cli.output import print_table, to_stderr
    from fedhaw.cli.progress import SweepProgress
    from fedhaw.experiments.reproduce import reproduce as run

    with SweepProgress(plan.jobs, to_stderr()) as watch:
        finished = list(run(plan, watch))
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


def _data(given: str | None, target: str) -> Any:
    from fedhaw.experiments.letter import DATA_NAMES

    if given is None:
        return ("cifar10",) if target == "figure" else DATA_NAMES
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        _check("--data", name, DATA_NAMES)
    return names


def _check(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}", param_hint=what)

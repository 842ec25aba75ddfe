"""`fedhaw report`: build or rebuild a report from histories."""

from pathlib import Path
from typing import Annotated

import typer

from fedhaw.cli import options as flag

EXAMPLES = flag.examples(
    "fedhaw report fedhaw-runs/compare-mnist-5k-1234abcd",
    'fedhaw report run-a run-b --out a-and-b --title "Two runs"',
)


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders that hold runs, at any depth.")
    ],
    out: Annotated[Path | None, flag.option("Where to write; by default the first folder.")] = None,
    title: Annotated[str | None, flag.option("Above everything.")] = None,
    notice: Annotated[
        str | None, flag.option("What every reader must know; stands in every table and picture.")
    ] = None,
    target: flag.Target = None,
    keep: Annotated[
        Path | None,
        flag.option("Also write small, compressed copies of the histories into this folder."),
    ] = None,
    tensorboard: flag.Tensorboard = False,
    as_json: flag.Json = False,
) -> None:
    """Build a report, or build it again, from the histories in some folders."""
    from fedhaw.cli.output import print_json, print_table, to_stderr
    from fedhaw.reports import comparison_table, keep_histories, write_report, write_tensorboard

    where = out or (folders[0] if folders[0].is_dir() else folders[0].parent)
    with to_stderr().status("Writing the report"):
        written = write_report(folders, where, title=title, notice=notice, target=target)
        if keep is not None:
            keep_histories(folders, keep)
        if tensorboard:
            write_tensorboard(folders, where / "tensorboard")
    if as_json:
        print_json({"report": str(written.page), "files": [str(path) for path in written.paths]})
        return
    print_table(
        comparison_table(written.comparison, target, notice, written.table.title, brief=True)
    )
    print(f"report   {written.page}")

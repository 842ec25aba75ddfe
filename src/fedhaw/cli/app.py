"""The commands, put together."""

from typing import Annotated

import typer

from fedhaw.cli import compare, export, report, reproduce, rules, run, watch
from fedhaw.cli.data import data

app = typer.Typer(
    name="fedhaw",
    suggest_commands=False,  # click suggests already
    help="Federated learning whose server learns how much to trust each client.",
    epilog="Begin with `fedhaw compare`: seven rules on 5,000 real digits, in about a minute.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from fedhaw import __version__

        print(f"fedhaw {__version__}")
        raise typer.Exit


@app.callback()
def fedhaw(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Federated learning whose server learns how much to trust each client."""


app.command(epilog=compare.EXAMPLES)(compare.compare)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)
app.command(epilog=run.EXAMPLES)(run.run)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=watch.EXAMPLES)(watch.watch)
app.command(epilog=rules.EXAMPLES)(rules.rules)
app.add_typer(data, name="data")

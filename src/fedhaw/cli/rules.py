"""`fedhaw rules`: what rules there are, their options and defaults."""

from typing import Annotated

import typer

from fedhaw.cli.options import Json, complete_rules, examples

EXAMPLES = examples(
    "fedhaw rules                every rule in one line, with its options",
    "fedhaw rules fedhaw         equations, options and reference of one rule",
    "fedhaw rules my_rule.py:MyRule    the same of your own",
    "fedhaw rules --json         the same for a script",
)


def rules(
    name: Annotated[
        str | None,
        typer.Argument(help="One rule in full.", autocompletion=complete_rules, show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the server rules, their options and defaults."""
    from fedhaw.experiments.catalogue import equations, options, summary
    from fedhaw.rules.registry import RULES, find

    chosen = [find(name)] if name is not None else list(RULES.values())
    if as_json:
        from fedhaw.cli.output import print_json

        listed = {
            rule.key: {
                "summary": summary(rule),
                "options": {
                    option.name: {
                        "kind": option.kind,
                        "default": option.default,
                        "note": option.note or None,
                    }
                    for option in options(rule)
                },
            }
            for rule in chosen
        }
        print_json({"rules": listed})
        return

    from rich.table import Table

    from fedhaw.cli.output import to_stdout

    console = to_stdout()
    if name is not None:
        console.print(equations(chosen[0]), markup=False, highlight=False)
        console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("rule", "option", "default", "allowed"):
        table.add_column(heading, overflow="fold")
    for rule in chosen:
        table.add_row(f"[bold]{rule.key}[/]", "", "", summary(rule))
        for option in options(rule):
            default = option.note or ("none" if option.default is None else str(option.default))
            table.add_row("", option.name, default, option.kind)
    console.print(table)
    console.print(
        "\nSet options with --rule-option KEY=VALUE, or in a recipe under [rule.options].",
        markup=False,
        highlight=False,
    )

"""`fedhaw run`: one federation, every option, from flags or a TOML file."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhaw.cli import options as flag
from fedhaw.cli.compare import describe
from fedhaw.rules.registry import DEFAULT
from fedhaw.settings import SETTINGS

if TYPE_CHECKING:
    from fedhaw.experiments.job import Job
    from fedhaw.reports import Comparison

EXAMPLES = flag.examples(
    "fedhaw run --rule fedhaw --rounds 100",
    "fedhaw run recipe.toml --seed 3 --out run-3",
    "fedhaw run --rule fedlws --rule-option beta=0.03 --rule-option clip=[0.01,0.2]",
    "fedhaw run --rule my_rule.py:MyRule --rule-option beta=0.5",
    "fedhaw run --split dirichlet --clients 100 --cohort 10 --uplink bursty --loss-rate 0.3 "
    "--burst 5",
)


@flag.with_settings(*SETTINGS)
def run(
    given: flag.Given,
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A TOML file; flags go before what it says.", show_default=False),
    ] = None,
    rule: Annotated[
        str | None,
        flag.option(
            f"The server rule, or your own, file.py:Name. Default {DEFAULT}.",
            flag.FEDERATION,
            autocompletion=flag.complete_rules,
        ),
    ] = None,
    rule_option: flag.RuleOptions = None,
    out: flag.Out = None,
    as_json: flag.Json = False,
    tensorboard: flag.Tensorboard = False,
) -> None:
    """Run one federation. Killed at any moment, the same command goes on where it stopped."""
    from fedhaw.cli.progress import watching
    from fedhaw.experiments.catalogue import parse_option
    from fedhaw.experiments.job import Job
    from fedhaw.experiments.recipe import read_recipe_values
    from fedhaw.experiments.sweep import run_sweep
    from fedhaw.history import History
    from fedhaw.reports import compare

    options = dict(parse_option(option) for option in rule_option or [])
    chosen: dict[str, object] | None = None
    if rule is not None:
        chosen = {"name": rule, "options": options}
    elif options:
        chosen = _with_options(read_recipe_values(recipe) if recipe else {}, options)
    federation = flag.recipe_of(given, recipe, chosen)
    label = federation.rule.entry.folder
    name = f"run-{label}-{Path(str(federation.settings['data'])).stem}"
    folder = out or Path("fedhaw-runs") / f"{name}-{federation.fingerprint()[:8]}"
    job = Job(label, federation, folder)
    with watching([job], folder, tensorboard) as watch:
        run_sweep([job], watch)
    _tell(job, compare([History.read(folder)]), as_json)


def _with_options(file: dict[str, object], options: dict[str, object]) -> dict[str, object]:
    """The file's rule with options of the command line put before its own."""
    from fedhaw.experiments.recipe import RuleChoice

    stated = file.get("rule", RuleChoice().name)
    if not isinstance(stated, dict):
        return {"name": stated, "options": options}
    own = stated.get("options", {})
    return {**stated, "options": {**own, **options} if isinstance(own, dict) else own}


def _tell(job: "Job", comparison: "Comparison", as_json: bool) -> None:
    from fedhaw.cli.output import print_json, print_table
    from fedhaw.experiments.compare import summary_of_rule
    from fedhaw.history import history_in
    from fedhaw.reports import comparison_table

    group = comparison.groups[0]
    if as_json:
        described = summary_of_rule(group, comparison.target())
        settings = {**job.recipe.described(), "out": str(job.folder)}
        print_json({"rules": {group.rule: described}, "settings": settings})
        return
    print_table(comparison_table(comparison, title=describe(job.recipe), brief=True))
    print(f"history  {history_in(job.folder)}")
    print(f"report   run: {shlex.join(['fedhaw', 'report', str(job.folder)])}")

"""Flags that several commands share, and how they become a recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedhaw.experiments.recipe import Recipe

FEDERATION, TRAINING, MACHINE, OUTPUT = "Federation", "Training", "Machine", "Output"


def complete_data(incomplete: str) -> list[str]:
    """Data sets that begin so."""
    from fedhaw.data import names

    return [name for name in names() if name.startswith(incomplete)]


def complete_rules(incomplete: str) -> list[str]:
    """Rules that begin so; of a comma-separated list, only the last is being typed."""
    from fedhaw.rules.registry import RULES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in RULES if name.startswith(last)]


def complete_updates(incomplete: str) -> list[str]:
    """Client updates that begin so."""
    from fedhaw.clients import UPDATES

    return [name for name in UPDATES if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Models that begin so."""
    from fedhaw.models import MODELS

    return [name for name in MODELS if name.startswith(incomplete)]


def complete_engines(incomplete: str) -> list[str]:
    """Engines that begin so."""
    from fedhaw.simulation.engines import ENGINES

    return [name for name in ENGINES if name.startswith(incomplete)]


Data = Annotated[
    str | None,
    typer.Option(
        help="mnist-5k (the default; no download), mnist, fashion-mnist, cifar10, stanford-dogs, "
        "FILE.npz, or a function of your own, file.py:Name.",
        autocompletion=complete_data,
        rich_help_panel=FEDERATION,
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder to look for data in first; then $FEDHAW_DATA and a cache folder.",
        rich_help_panel=FEDERATION,
        show_default=False,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="letter (the default), dirichlet, iid, shards, holders, or FILE.npz.",
        rich_help_panel=FEDERATION,
        show_default=False,
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="D_alpha: how unevenly classes are spread; smaller is more uneven. Default 0.1.",
        rich_help_panel=FEDERATION,
        show_default=False,
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(help="How many clients. Default 10.", rich_help_panel=FEDERATION),
]
Cohort = Annotated[
    int | None,
    typer.Option(
        help="How many clients take part in a round, drawn anew each time. Default all.",
        rich_help_panel=FEDERATION,
    ),
]
LossRate = Annotated[
    float | None,
    typer.Option(
        help="p_e: each client's upload is lost with a probability of its own, up to this. "
        "Default 0.",
        rich_help_panel=FEDERATION,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="mlp, mlp-W-W, logistic, cnn, resnet18, resnet18-W, head, or your own, file.py:Name. "
        "Default by data set.",
        autocompletion=complete_models,
        rich_help_panel=TRAINING,
    ),
]
Rounds = Annotated[
    int | None, typer.Option(help="Rounds. Default by data set.", rich_help_panel=TRAINING)
]
Epochs = Annotated[
    int | None,
    typer.Option(
        help="Passes over its own data a client makes in a round. Default by data set.",
        rich_help_panel=TRAINING,
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(help="Samples a training step. Default by data set.", rich_help_panel=TRAINING),
]
Eta = Annotated[
    float | None,
    typer.Option(help="The clients' learning rate. Default by data set.", rich_help_panel=TRAINING),
]
ClientUpdate = Annotated[
    str | None,
    typer.Option(
        help="sgd, sgd-wd, adam, fedprox, fedprox+ one of the others, or your own, file.py:Name. "
        "Default by data set.",
        autocompletion=complete_updates,
        rich_help_panel=TRAINING,
    ),
]
PerClientAccuracy = Annotated[
    bool | None,
    typer.Option(
        "--per-client-accuracy",
        help="Also evaluate the global model on each client's own samples: mean, worst, spread.",
        rich_help_panel=TRAINING,
        show_default=False,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="auto (the default), sequential, processes or stacked.",
        autocompletion=complete_engines,
        rich_help_panel=MACHINE,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Worker processes of the processes engine. Default one a core.",
        rich_help_panel=MACHINE,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where to compute: cpu (the default), cuda, ...", rich_help_panel=MACHINE),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results. Default fedhaw-runs/ and a name made of the settings; the "
        "same command goes on there where it stopped.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object on standard output and nothing else there.",
        rich_help_panel=OUTPUT,
    ),
]
Tensorboard = Annotated[
    bool,
    typer.Option(
        "--tensorboard",
        help="Also write TensorBoard event files (needs fedhaw\\[tracking]).",
        rich_help_panel=OUTPUT,
    ),
]
RuleNames = Annotated[
    str,
    typer.Option(
        "--rules",
        help="Rules by name, separated by commas; your own as package.module:Name or file.py:Name.",
        autocompletion=complete_rules,
        rich_help_panel=FEDERATION,
    ),
]
RuleOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--rule-option",
        metavar="KEY=VALUE",
        help="An option of the rule, such as eta_gamma=1e-4 (in compare: fedhaw.eta_gamma=1e-4, "
        "and myrule.beta=2 for file.py:MyRule); may be given several times. `fedhaw rules` lists "
        "them.",
        rich_help_panel=FEDERATION,
    ),
]


def recipe_of(
    flags: Mapping[str, Any], file: Path | None = None, rule: dict[str, object] | None = None
) -> "Recipe":
    """The recipe that flags, and a file below them, describe.

    Args:
        flags: values by key; None where a flag was not given.
        file: a TOML file whose keys the flags replace.
        rule: the rule, if it was given by flags.

    Raises:
        RecipeError: something in them cannot be used; the sentence says where it stands.
    """
    from fedhaw.experiments.recipe import Recipe, read_recipe_values

    given = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in flags.items()
        if value is not None
    }
    if rule is not None:
        given["rule"] = rule
    values = read_recipe_values(file) if file is not None else {}

    def where(key: str) -> str:
        if key.partition(".")[0] in given or file is None:
            return f"--{key.replace('_', '-')}"
        return f"{key} in {file}"

    return Recipe.of({**values, **given}, where, str(file) if file else "")

"""Flags that several commands share; those of the settings are made from their declaration."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhaw.settings import SETTINGS, SPELLINGS, SWEEP_SETTINGS, Setting
from fedhaw.settings.table import default_text

if TYPE_CHECKING:
    from fedhaw.experiments.recipe import Recipe
    from fedhaw.experiments.sharing import Sharing

FEDERATION, TRAINING, OUTPUT = "Federation", "Training", "Output"

_METAVARS = {"whole number": "INTEGER", "number": "FLOAT", "text": "TEXT", "list": "TEXT"}


def complete_rules(incomplete: str) -> list[str]:
    """Rules that begin so; of a comma-separated list, only the last is being typed."""
    from fedhaw.rules.registry import RULES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in RULES if name.startswith(last)]


def complete(name: str) -> Callable[[str], list[str]]:
    """What completes a setting: the values there are for it that begin so."""
    setting = SETTINGS[name]

    def values(incomplete: str) -> list[str]:
        return [value for value in setting.choices or setting.known if value.startswith(incomplete)]

    return values


def option(text: str, panel: str = OUTPUT, *names: str, **more: Any) -> Any:
    """A flag of one command, under a heading of its help; a default is shown where it is asked for.

    Args:
        text: a sentence of help.
        panel: the heading.
        names: of the flag, where they are not the parameter's.
        more: see `typer.Option`.
    """
    return typer.Option(*names, help=text, rich_help_panel=panel, **{"show_default": False, **more})


def examples(*commands: str) -> str:
    """The end of a command's help; without a gap, the lines would be set as one paragraph."""
    return "\n\n  ".join(("Examples:", *commands))


Out = Annotated[
    Path | None,
    option(
        "Folder for the results. Default fedhaw-runs/ and a name made of the settings; the same "
        "command goes on there where it stopped."
    ),
]
Json = Annotated[
    bool,
    option("Print one JSON object on standard output and nothing else there.", OUTPUT, "--json"),
]
Tensorboard = Annotated[
    bool,
    option(
        "Also write TensorBoard event files (needs fedhaw\\[tracking]).", OUTPUT, "--tensorboard"
    ),
]
Target = Annotated[
    float | None, option("Accuracy, 0 to 1, for the columns of rounds and seconds to reach it.")
]
RuleOptions = Annotated[
    list[str] | None,
    option(
        "An option of the rule, such as eta_gamma=1e-4 (in compare: fedhaw.eta_gamma=1e-4, and "
        "myrule.beta=2 for file.py:MyRule); may be given several times. `fedhaw rules` lists them.",
        FEDERATION,
        metavar="KEY=VALUE",
    ),
]

Given = Mapping[str, object]
"""What the flags of settings say, by the settings' names; those that were not given are absent."""


def with_settings(
    *names: str, also: Mapping[str, Sequence[str]] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a command a flag for each of some settings.

    The command receives what they say as its parameter `given`, in whose place they are listed.

    Args:
        names: which settings.
        also: further spellings of some flags, by setting.
    """
    known = SETTINGS | SWEEP_SETTINGS
    flags = [_flag(known[name], (also or {}).get(name, ())) for name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_flags(**values: Any) -> None:
            said = {name: values.pop(name) for name in names}
            given = {n: _read(known[n], value) for n, value in said.items() if value is not None}
            command(given=given, **values)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for own in signature.parameters.values():
            parameters += flags if own.name == "given" else [own]
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        vars(with_flags)["__signature__"] = signature.replace(parameters=keywords)
        with_flags.__annotations__ = {p.name: p.annotation for p in keywords}
        return with_flags

    return decorate


def _flag(setting: Setting, also: Sequence[str]) -> inspect.Parameter:
    spellings = [f"--{name}" for name, of in SPELLINGS.items() if of == setting.name]
    names = [setting.flag, *spellings, *also]
    if setting.kind == "switch":
        names[0] += f"/--no-{setting.flag[2:]}"
    # Numbers are read by `Setting.from_flag`: the sentence on a wrong one is then the same as in a
    # file and in Python.
    kind: Any = {"switch": bool, "list": list[str]}.get(setting.kind, str)
    flag = option(
        f"{setting.help} Default {default_text(setting)}.",
        setting.panel,
        *names,
        metavar=_METAVARS.get(setting.kind),
        autocompletion=complete(setting.name) if setting.choices or setting.known else None,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, flag],
    )


def _read(setting: Setting, value: object) -> object:
    return setting.from_flag(value) if isinstance(value, str) else value


def sharing_of(given: Given) -> "tuple[Sharing, Given]":
    """How a sweep shares the machine, by flags; and the flags that are not about that."""
    from fedhaw.experiments.sharing import Sharing

    own = {name: value for name, value in given.items() if name in SWEEP_SETTINGS}
    others = {name: value for name, value in given.items() if name not in SWEEP_SETTINGS}
    return Sharing.of(own, lambda name: SWEEP_SETTINGS[name].flag), others


def recipe_of(
    given: Given,
    file: Path | None = None,
    rule: dict[str, object] | None = None,
    also: Mapping[str, Sequence[str]] | None = None,
) -> "Recipe":
    """The recipe that flags, and a file below them, describe.

    Args:
        given: what the flags say, by setting.
        file: a TOML file whose keys the flags replace.
        rule: the rule, if it was given by flags.
        also: further spellings of some flags, by setting.
    """
    from fedhaw.experiments.recipe import Recipe, read_recipe_values

    said = dict(given) if rule is None else {**given, "rule": rule}
    values = read_recipe_values(file) if file is not None else {}

    def place(key: str) -> str:
        if key.partition(".")[0] in said or file is None:
            others = ", ".join((also or {}).get(key, ()))
            return f"--{key.replace('_', '-')}" + (f" ({others})" if others else "")
        return f"{key} in {file}"

    return Recipe.of({**values, **said}, place, str(file) if file else "")

"""The settings as a page of the documentation, docs/settings.md."""

from fedhaw.settings.declaration import SETTINGS, SPELLINGS, SWEEP_SETTINGS
from fedhaw.settings.setting import Setting

HEAD = """# Settings

A federation is described by these settings. They are keywords of `fedhaw.simulate`, keys of a
[recipe](recipes.md) and flags of `fedhaw run` and `fedhaw compare` (`loss_rate` is `--loss-rate`),
with the same defaults and limits everywhere. A value outside them is refused before anything is
written. This page is made by `python -m fedhaw.settings > docs/settings.md`.
"""


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD]
    for panel in dict.fromkeys(setting.panel for setting in SETTINGS.values()):
        own = [setting for setting in SETTINGS.values() if setting.panel == panel]
        parts += [f"\n## {panel}\n", *_table(own)]
    parts += [_NOTES, _SWEEP, *_table(list(SWEEP_SETTINGS.values()))]
    return "".join(parts)


def _table(settings: list[Setting]) -> list[str]:
    head = "\n| setting | meaning | default | allowed |\n|---|---|---|---|\n"
    return [head, *map(_row, settings)]


_NOTES = """
Where a default differs by data set, the first one is that of all others; an array or a file of your
own is one of the others. `workers`, `data_dir` and `checkpoint_every` say where and how fast a run
computes, and leave every bit of the result as it is; `engine` and `device` may change the rounding.
"""

_SWEEP = """
## Sweep

How the runs of a [sweep](cli.md#several-runs-at-a-time) share the machine: flags of
`fedhaw compare` and `fedhaw reproduce`. They change no result and are no part of a recipe.
"""


def _row(setting: Setting) -> str:
    also = "".join(f", also `{name}`" for name, of in SPELLINGS.items() if of == setting.name)
    allowed = setting.allowed
    if setting.objects:
        allowed += f"; from Python also {setting.objects}"
    return f"| `{setting.name}`{also} | {setting.help} | {default_text(setting)} | {allowed} |\n"


def default_text(setting: Setting) -> str:
    """The default in words, by data set where it differs."""
    if setting.default_text:
        return setting.default_text
    others = "".join(f"; {data}: {_written(value)}" for data, value in setting.by_data.items())
    return f"{_written(setting.default)}{others}"


def _written(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)

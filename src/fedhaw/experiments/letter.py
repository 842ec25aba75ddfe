"""The letter's tables as lists of cells: what to run for each, and the number it published.

The numbers stand in `letter.toml` beside this file. A cell is one number of a table: a row and a
column, the recipe whose runs give our number (over several seeds), where in their histories it is
read, and the letter's number. Any other rule, a user's own too, can stand beside the letter's.

Input scales. The authors' test images of MNIST are scaled differently from their training images;
training is the same as ours. So one run gives the accuracy on both scales, except that of a rule
with proxy samples, as FedLAW, which come from the test images: it is run once for each. CIFAR-10
differs in training, so a table of it is on one scale, "matched" unless asked otherwise; Stanford
Dogs' features have none.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fedhaw.data.scales import InputScale
from fedhaw.errors import shown
from fedhaw.experiments.catalogue import letter_options, needs_proxy
from fedhaw.experiments.recipe import Recipe, RecipeError
from fedhaw.rules.registry import DEFAULT, RuleEntry, check_apart, find

DataName: TypeAlias = Literal["mnist", "cifar10", "dogs"]
TableName: TypeAlias = Literal["heterogeneous", "errors", "fedprox", "figure"]
RunSize: TypeAlias = Literal["full", "medium", "small", "tiny"]

DATA_NAMES: tuple[DataName, ...] = get_args(DataName)
TABLE_NAMES: tuple[TableName, ...] = get_args(TableName)
RUN_SIZES: tuple[RunSize, ...] = get_args(RunSize)

_PROX_ROWS = {"fedavg": "FedProx", "fedhaw": "FedProx+HAW", DEFAULT: "FedProx+HAW-auto"}


@dataclass(frozen=True)
class LetterCell:
    """One number of a table.

    Attributes:
        row: the row's title, such as "FedProx+HAW".
        column: the column's title, such as "D_alpha 0.1".
        recipe: what to run; its seed is replaced.
        input_scale: on which input scale the accuracy is read.
        round_index: in which round it is read.
        letter: the letter's number in percent; None where it gives none.
    """

    row: str
    column: str
    recipe: Recipe
    input_scale: InputScale
    round_index: int
    letter: float | None


@dataclass(frozen=True)
class LetterTable:
    """A table, or the figure, of the letter for one data set.

    Attributes:
        name: "heterogeneous", "errors", "fedprox" or "figure".
        data: "mnist", "cifar10" or "dogs".
        title: above the table.
        notice: how the runs differ from the letter's, or "" when they do not.
        cells: in the order of rows, then columns.
    """

    name: TableName
    data: DataName
    title: str
    notice: str
    cells: tuple[LetterCell, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows' titles in order."""
        return tuple(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' titles in order."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Every recipe the table needs, each once."""
        return tuple({cell.recipe.fingerprint(): cell.recipe for cell in self.cells}.values())


@dataclass(frozen=True)
class LetterConditions:
    """How the letter's experiments are to be run.

    Attributes:
        size: "full", the letter's own, or one of the smaller versions.
        input_scale: of CIFAR-10's images; None: "matched" (MNIST: both scales).
        changes: further keys for every recipe, such as device and data_dir.
        kept: folder of kept histories that tables are made of; None: they are run.
        rules: the rows of every table by their rules' names, or where a user's own stand; none for
            the letter's and our default.
    """

    size: RunSize = "full"
    input_scale: InputScale | None = None
    changes: tuple[tuple[str, object], ...] = ()
    kept: Path | None = None
    rules: tuple[str, ...] = ()

    def runs(self, out: Path) -> Path:
        """The folder of all runs, where `out` is that of everything."""
        return self.kept or out / "runs"


@cache
def letter() -> dict[str, Any]:
    """Everything in `letter.toml`."""
    text = files("fedhaw.experiments").joinpath("letter.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def base_recipe(data: DataName, conditions: LetterConditions) -> Recipe:
    """The letter's federation for a data set, or its smaller version."""
    keys = dict(letter()["settings"][data])
    del keys["title"], keys["letter_samples"]
    keys.update(letter()["sizes"].get(conditions.size, {}).get(data, {}))
    keys.pop("notice", None)
    return Recipe.of({**keys, "clients": 10, "split": "letter", **dict(conditions.changes)})


def with_rule(recipe: Recipe, data: DataName, rule: str) -> Recipe:
    """The same federation under a rule, with the letter's rates.

    A smaller version whose clients have longer steps, and fewer of them, has FedHAW's rates grow as
    the clients' do: they stand in its formulas as eta_gamma / eta and eta_lambda / eta.
    """
    longer = recipe.settings["eta"] / letter()["settings"][data]["eta"]
    if longer == 1 or rule != "fedhaw":
        return recipe.with_(rule=rule)
    rates = letter_options(rule, data, lossy=recipe.settings["loss_rate"] > 0)
    scaled = {name: float(f"{longer * rate:.6g}") for name, rate in rates.items()}
    return recipe.with_(rule={"name": rule, "options": scaled})


def letter_table(name: TableName, data: DataName, conditions: LetterConditions) -> LetterTable:
    """The cells of one table for one data set."""
    check_known("table", name, TABLE_NAMES)
    check_known("data set", data, DATA_NAMES)
    check_known("scale", conditions.size, RUN_SIZES)
    table = letter()[name]
    cells_of = _fedprox if name == "fedprox" else _cells
    plain = cells_of(name, data, base_recipe(data, conditions), conditions.rules)
    shown = letter()["settings"][data]["title"]
    return LetterTable(
        name=name,
        data=data,
        title=f"{shown}: {table['title']}",
        notice=letter()["sizes"].get(conditions.size, {}).get(data, {}).get("notice", ""),
        cells=tuple(_on_input_scales(plain, data, conditions.input_scale)),
    )


def prox_row(rule: RuleEntry) -> str:
    """What a rule is called over clients of FedProx."""
    return _PROX_ROWS.get(rule.name, f"FedProx+{rule.title}")


def _cells(
    name: TableName, data: DataName, base: Recipe, asked: Sequence[str]
) -> Iterator[LetterCell]:
    """A row a rule, and a column a D_alpha or, at one D_alpha, a p_e."""
    table = letter()[name]
    published: dict[str, list[float]] = table.get(data, {})
    if name == "heterogeneous":
        columns = {f"D_alpha {alpha:g}": {"alpha": alpha} for alpha in table["alphas"]}
    else:
        rates = table["loss_rates"] if name == "errors" else [table["loss_rate"]]
        columns = {f"p_e = {p:g}": {"alpha": table["alpha"], "loss_rate": p} for p in rates}
    if name == "figure":  # its numbers stand in the table of errors
        errors = letter()["errors"]
        column = errors["loss_rates"].index(table["loss_rate"])
        published = {rule: [errors[data][rule][column]] for rule in table["rules"]}
    for rule, numbers in _rows(published, asked):
        for (column, changes), number in zip(columns.items(), numbers, strict=True):
            recipe = with_rule(base.with_(**changes), data, rule.key)
            yield _cell(rule.title, column, recipe, number)


def _fedprox(
    name: TableName, data: DataName, base: Recipe, asked: Sequence[str]
) -> Iterator[LetterCell]:
    """A row a rule over clients of FedProx, and a column a moment of the run."""
    table, plain = letter()[name], base.settings["client_update"]
    update = "fedprox" if plain == "sgd" else f"fedprox+{plain}"
    for rule, numbers in _rows(table[data], asked):
        lossy = base.with_(alpha=table["alpha"], loss_rate=table["loss_rate"], client_update=update)
        recipe = with_rule(lossy, data, rule.key)
        for i, number in enumerate(numbers, start=1):
            t = max(i * recipe.settings["rounds"] // table["checkpoints"] - 1, 0)
            yield replace(_cell(prox_row(rule), f"t{i} = {t}", recipe, number), round_index=t)


def _rows(
    published: dict[str, list[float]], asked: Sequence[str]
) -> Iterator[tuple[RuleEntry, Sequence[float | None]]]:
    """The rules of a table, with the letter's numbers where it has them: its own come first."""
    known = (*published, DEFAULT)
    entries = {rule.key: rule for rule in map(find, asked or known)}
    check_apart(entries.values())
    titles = [rule.title for rule in entries.values()]
    for key in sorted(entries, key=lambda key: known.index(key) if key in known else len(known)):
        rule = entries[key]
        if titles.count(rule.title) > 1:  # a row is known by its title
            rule = replace(rule, title=f"{rule.title} ({rule.folder})")
        yield rule, published.get(key, [None] * len(next(iter(published.values()))))


def _cell(row: str, column: str, recipe: Recipe, number: float | None) -> LetterCell:
    last = recipe.settings["rounds"] - 1
    return LetterCell(row, column, recipe, "matched", last, number)


def _on_input_scales(
    cells: Iterator[LetterCell], data: DataName, asked: InputScale | None
) -> Iterator[LetterCell]:
    """Each cell on the input scales its data set is reported on; see the head of this file."""
    if data != "mnist":
        scale: InputScale = asked or "matched"
        for cell in cells:
            recipe = cell.recipe.with_(input_scale=scale)
            yield replace(cell, recipe=recipe, input_scale=scale)
        return
    scales: tuple[InputScale, ...] = (asked,) if asked else ("authors", "matched")
    for cell in cells:
        both = cell.recipe.with_(also_scales=["authors"])
        for scale in scales:
            own_run = cell.recipe.with_(input_scale=scale)
            yield replace(
                cell,
                column=cell.column if asked else f"{cell.column}, {scale}",
                recipe=own_run if needs_proxy(cell.recipe.rule.entry) else both,
                input_scale=scale,
            )


def check_known(what: str, value: str, known: Sequence[str]) -> None:
    """A check of a name: one that is not known is refused."""
    if value not in known:
        raise RecipeError(f"There is no {what} {shown(value)}; choose from {', '.join(known)}.")

"""`fedhaw data`: list, fetch and check data sets; split them over clients; draw who holds what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhaw.cli.options import Given, Json, complete, recipe_of, with_settings

if TYPE_CHECKING:
    from fedhaw.data import Dataset
    from fedhaw.data.partitions import Indices

data = typer.Typer(
    help="Data sets: list, fetch, check; split them over clients, and draw who holds what.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[
    str, typer.Argument(help="A data set, or FILE.npz.", autocompletion=complete("data"))
]
ALSO = {"split": ["--how"], "split_seed": ["--seed"]}
"""Shorter flags, where nothing but a split is asked for."""

data_dir = with_settings("data_dir")
splitting = with_settings(
    "data_dir",
    "split",
    "split_seed",
    "alpha",
    "clients",
    "min_size",
    "shards_per_client",
    also=ALSO,
)


@data.command("list", epilog="Example:\n\n  fedhaw data list --data-dir ~/data")
@data_dir
def list_(given: Given, as_json: Json = False) -> None:
    """List the data sets and which of them are here."""
    from fedhaw.cli.output import print_json, to_stdout
    from fedhaw.data import DataError, load, names, search_folders

    found, folder = {}, _folder(given)
    for name in names():
        try:
            dataset = load(name, folder, download=False, progress=False)
            found[name] = f"{len(dataset.y_train)} training and {len(dataset.y_test)} test samples"
        except DataError:
            found[name] = ""
    folders = [str(folder) for folder in search_folders(folder)]
    if as_json:
        print_json(
            {"data": {name: bool(text) for name, text in found.items()}, "searched": folders}
        )
        return
    console = to_stdout()
    for name, text in found.items():
        console.print(
            f"{name:<15} {text or 'not here; `fedhaw data fetch` gets it'}", highlight=False
        )
    console.print(f"Looked in {', '.join(folders)}.", highlight=False)


@data.command(epilog="Example:\n\n  fedhaw data fetch mnist --data-dir data")
@data_dir
def fetch(name: Name, given: Given) -> None:
    """Download a data set from its public source, unless it is here, and check it."""
    from fedhaw.data import load

    _say(load(name, _folder(given)))


@data.command(epilog="Example:\n\n  fedhaw data check my-images.npz")
@data_dir
def check(name: Name, given: Given, as_json: Json = False) -> None:
    """Check a data set's files, or an .npz of your own; nothing is downloaded."""
    from fedhaw.data import load

    dataset = load(name, _folder(given), download=False)
    if not as_json:
        _say(dataset)
        return
    from fedhaw.cli.output import print_json

    print_json(
        {
            "name": dataset.name,
            "train": list(dataset.x_train.shape),
            "test": list(dataset.x_test.shape),
            "classes": dataset.classes,
        }
    )


@data.command(epilog="Example:\n\n  fedhaw data split mnist --alpha 0.1 --out split.npz")
@splitting
def split(
    name: Name, out: Annotated[Path, typer.Option(help="The .npz file to write.")], given: Given
) -> None:
    """Share a data set out over clients and write the split to a file.

    The file can be given to every command as --split FILE.npz.
    """
    from fedhaw.data import write_partition

    if out.suffix != ".npz":
        raise typer.BadParameter("its name must end in .npz", param_hint="--out")
    _, parts = _shared_out(name, given)
    write_partition(out, parts)
    sizes = ", ".join(str(len(part)) for part in parts)
    print(f"Wrote {out}: {len(parts)} clients with {sizes} samples.")


@data.command(epilog="Example:\n\n  fedhaw data draw mnist-5k --alpha 0.1 --out holdings.png")
@splitting
def draw(
    name: Name,
    out: Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.")],
    given: Given,
) -> None:
    """Draw how many samples of each class each client holds."""
    from fedhaw.data import label_counts
    from fedhaw.reports.holdings import draw_holdings

    if out.suffix not in (".png", ".pdf", ".svg"):
        raise typer.BadParameter(
            "the file's name must end in .png, .pdf or .svg", param_hint="--out"
        )
    dataset, parts = _shared_out(name, given)
    draw_holdings(label_counts(dataset.y_train, parts, dataset.classes), out)
    print(f"Wrote {out}.")


def _shared_out(name: str, given: Given) -> "tuple[Dataset, list[Indices]]":
    from fedhaw.experiments.running import load_data
    from fedhaw.simulation.preparation import shared_out

    recipe = recipe_of({"data": name, **given}, also=ALSO)
    return shared_out(recipe.settings, load_data(recipe))


def _folder(given: Given) -> str | None:
    folder = given.get("data_dir")
    return None if folder is None else str(folder)


def _say(dataset: "Dataset") -> None:
    shape = " x ".join(str(size) for size in dataset.x_train.shape[1:])
    print(
        f"{dataset.name}: {len(dataset.y_train):,} training and {len(dataset.y_test):,} test "
        f"samples of {shape} numbers, {dataset.classes} classes; all in order."
    )

"""`fedhaw data`: list, fetch and check data sets; split them over clients; draw who holds what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhaw.cli.options import Alpha, Clients, DataDir, Json, Split, complete_data

if TYPE_CHECKING:
    from fedhaw.data import Dataset
    from fedhaw.experiments.recipe import Recipe

data = typer.Typer(
    help="Data sets: list, fetch, check; split them over clients, and draw who holds what.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[str, typer.Argument(help="A data set, or FILE.npz.", autocompletion=complete_data)]
SplitSeed = Annotated[
    int | None, typer.Option("--seed", help="Of the split. Default the letter's 1, else 0.")
]


@data.command("list", epilog="Example:\n\n  fedhaw data list --data-dir ~/data")
def list_(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the data sets and which of them are here."""
    from fedhaw.cli.output import print_json, to_stdout
    from fedhaw.data import DataError, load, names, search_folders

    found = {}
    for name in names():
        try:
            dataset = load(name, data_dir, download=False, progress=False)
            found[name] = f"{len(dataset.y_train)} training and {len(dataset.y_test)} test samples"
        except DataError:
            found[name] = ""
    folders = [str(folder) for folder in search_folders(data_dir)]
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
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a data set from its public source, unless it is here, and check it."""
    from fedhaw.data import load

    _say(load(name, data_dir))


@data.command(epilog="Example:\n\n  fedhaw data check my-images.npz")
def check(name: Name, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Check a data set's files, or an .npz of your own; nothing is downloaded."""
    from fedhaw.data import load

    dataset = load(name, data_dir, download=False)
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
def split(
    name: Name,
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
    data_dir: DataDir = None,
    how: Split = None,
    alpha: Alpha = None,
    clients: Clients = None,
    seed: SplitSeed = None,
) -> None:
    """Share a data set out over clients and write the split to a file.

    The file can be given to every command as --split FILE.npz.
    """
    from fedhaw.data import write_partition
    from fedhaw.experiments.federation import load_data, split_data

    if out.suffix != ".npz":
        raise typer.BadParameter("its name must end in .npz", param_hint="--out")
    recipe = _recipe(name, data_dir, how, alpha, clients, seed)
    parts = split_data(recipe, load_data(recipe))
    write_partition(out, parts)
    sizes = ", ".join(str(len(part)) for part in parts)
    print(f"Wrote {out}: {len(parts)} clients with {sizes} samples.")


@data.command(epilog="Example:\n\n  fedhaw data draw mnist-5k --alpha 0.1 --out holdings.png")
def draw(
    name: Name,
    out: Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.")],
    data_dir: DataDir = None,
    how: Split = None,
    alpha: Alpha = None,
    clients: Clients = None,
    seed: SplitSeed = None,
) -> None:
    """Draw how many samples of each class each client holds."""
    from fedhaw.data import label_counts
    from fedhaw.experiments.federation import load_data, split_data
    from fedhaw.reports.holdings import draw_holdings

    if out.suffix not in (".png", ".pdf", ".svg"):
        raise typer.BadParameter(
            "the file's name must end in .png, .pdf or .svg", param_hint="--out"
        )
    recipe = _recipe(name, data_dir, how, alpha, clients, seed)
    dataset = load_data(recipe)
    counts = label_counts(dataset.y_train, split_data(recipe, dataset), dataset.classes)
    draw_holdings(counts, out)
    print(f"Wrote {out}.")


def _recipe(
    name: str,
    data_dir: Path | None,
    how: str | None,
    alpha: float | None,
    clients: int | None,
    seed: int | None,
) -> "Recipe":
    from fedhaw.cli.options import recipe_of

    return recipe_of(
        {
            "data": name,
            "data_dir": data_dir,
            "split": how,
            "alpha": alpha,
            "clients": clients,
            "split_seed": seed,
        }
    )


def _say(dataset: "Dataset") -> None:
    shape = " x ".join(str(size) for size in dataset.x_train.shape[1:])
    print(
        f"{dataset.name}: {len(dataset.y_train):,} training and {len(dataset.y_test):,} test "
        f"samples of {shape} numbers, {dataset.classes} classes; all in order."
    )

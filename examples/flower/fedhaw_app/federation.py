"""What the recipe asks for: the same model, split and test set on the server and on every client.

A real deployment would have each client load the data it holds; here everybody loads the same
data set, and client k takes the k-th part of it, so that the result can be held against
`fedhaw run`.
"""

from functools import lru_cache
from pathlib import Path

from flwr.app import Context

from fedhaw.experiments import Recipe, RecipeError, read_recipe
from fedhaw.experiments.running import prepare
from fedhaw.simulation import Federation

HERE = Path(__file__).resolve().parent.parent


def federation_of(context: Context) -> tuple[Recipe, Federation]:
    """The recipe, with what the run's configuration changes in it, and its federation."""
    config = context.run_config
    changes: dict[str, object] = {}
    if config["rule"]:
        changes["rule"] = str(config["rule"])
    if config["client-update"]:
        changes["client_update"] = str(config["client-update"])
    if config["rounds"]:
        changes["rounds"] = int(config["rounds"])
    if config["clients"]:
        changes["clients"] = int(config["clients"])
    if int(config["seed"]) >= 0:
        changes["seed"] = int(config["seed"])
    if config["data-dir"]:
        changes["data_dir"] = str(config["data-dir"])
    return _read(str(config["recipe"]), tuple(changes.items()))


@lru_cache(maxsize=1)
def _read(path: str, changes: tuple[tuple[str, object], ...]) -> tuple[Recipe, Federation]:
    recipe = read_recipe(HERE / path, **dict(changes))
    stand_in = recipe.settings["stand_in"]
    if stand_in != "global":
        raise RecipeError(
            f'stand_in is "{stand_in}"; on Flower a lost upload is replaced by "global".'
        )
    return recipe, prepare(recipe)

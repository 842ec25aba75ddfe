"""What the recipe asks for: the same model, split and test set on the server and on every client.

A real deployment would have each client load the data it holds; here everybody loads the same
data set, and client k takes the k-th part of it, so that the result can be held against
`fedhaw run`.
"""

from functools import lru_cache
from pathlib import Path

import torch
from flwr.app import Context
from torch import nn

from fedhaw.clients import LocalUpdate, named
from fedhaw.experiments.federation import load_data
from fedhaw.experiments.recipe import Recipe, RecipeError, read_recipe
from fedhaw.models import build

HERE = Path(__file__).resolve().parent.parent


def recipe_of(context: Context) -> Recipe:
    """The recipe, with what the run's configuration changes in it."""
    config = context.run_config
    changes: dict[str, object] = {}
    if config["rule"]:
        changes["rule"] = str(config["rule"])
    if config["rounds"]:
        changes["rounds"] = int(config["rounds"])
    if config["clients"]:
        changes["clients"] = int(config["clients"])
    if int(config["seed"]) >= 0:
        changes["seed"] = int(config["seed"])
    if config["data-dir"]:
        changes["data_dir"] = str(config["data-dir"])
    recipe = _read(str(config["recipe"]), tuple(changes.items()))
    if recipe.stand_in != "global":
        raise RecipeError(
            f'stand_in is "{recipe.stand_in}"; on Flower a lost upload is replaced by "global".'
        )
    return recipe


@lru_cache(maxsize=1)
def _read(path: str, changes: tuple[tuple[str, object], ...]) -> Recipe:
    return read_recipe(HERE / path, **dict(changes))


def module_of(recipe: Recipe) -> nn.Module:
    """The initial model, which depends on the seed alone."""
    dataset = load_data(recipe)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return build(recipe.model, dataset.input_shape, dataset.classes)


def update_of(recipe: Recipe) -> LocalUpdate:
    """What a client does with the global model."""
    return named(
        recipe.client_update,
        eta=recipe.eta,
        epochs=recipe.epochs,
        batch=recipe.batch,
        mu=recipe.mu,
        weight_decay=recipe.weight_decay,
    )

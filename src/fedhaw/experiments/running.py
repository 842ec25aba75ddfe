"""From a recipe to a run: its data, its federation, its rule, and the simulation itself."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhaw.data import Dataset, beginning, load
from fedhaw.experiments.catalogue import build_rule, entries, needs_proxy
from fedhaw.experiments.recipe import Recipe
from fedhaw.rules import Rule

if TYPE_CHECKING:
    from fedhaw.history import History, RoundRecord
    from fedhaw.simulation import Federation


def load_data(recipe: Recipe) -> Dataset:
    """The recipe's data set; a sweep loads it once."""
    settings = recipe.settings
    folder = settings["data_dir"]
    return _loaded(
        str(settings["data"]), None if folder is None else str(folder), settings["train_samples"]
    )


@lru_cache(maxsize=2)
def _loaded(name: str, data_dir: str | None, train_samples: int | None) -> Dataset:
    dataset = load(name, data_dir)
    return dataset if train_samples is None else beginning(dataset, train_samples)


def prepare(recipe: Recipe) -> "Federation":
    """The recipe's federation; recipes that differ in rule and seed alone can share it."""
    from fedhaw.simulation import Federation

    return Federation.prepare(recipe.settings, load_data(recipe))


def rule_of(recipe: Recipe, federation: "Federation") -> Rule[Any]:
    """The recipe's rule, with the letter's values for what the recipe leaves open."""
    asked = any(map(needs_proxy, entries(recipe.rule.name, recipe.rule_options)))
    proxy = federation.proxy_losses() if asked else None
    return build_rule(
        recipe.rule.name, recipe.rule_options, eta=recipe.settings["eta"], proxy=proxy
    )


def run_recipe(
    recipe: Recipe,
    out: Path | None = None,
    on_round: "Callable[[RoundRecord], None] | None" = None,
    name: str | None = None,
    federation: "Federation | None" = None,
) -> "History":
    """The run of a recipe; one that was interrupted in the same folder goes on.

    Args:
        recipe: what to run.
        out: folder of the history and the checkpoints; None keeps nothing.
        on_round: is given each round's record.
        name: what the run is called in reports, default the rule's name.
        federation: the recipe's, if it has been prepared before, under whatever seed.

    Raises:
        FedhawError: something cannot be used; see `fedhaw.simulate`.
    """
    from fedhaw.simulation import run

    prepared = (federation or prepare(recipe)).with_seed(recipe.settings["seed"])
    rule, entry = rule_of(recipe, prepared), recipe.rule.entry
    name = name or (entry.title if entry.reference else entry.name)
    return run(prepared, rule, out, name=name, on_round=on_round)

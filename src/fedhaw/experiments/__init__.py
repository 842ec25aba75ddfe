"""Named recipes, runs over rules and seeds, and the experiments of the letter.

Importing this package starts nothing and needs no torch.
"""

from fedhaw.experiments.catalogue import build_rule
from fedhaw.experiments.recipe import Recipe, RecipeError, RuleChoice, read_recipe
from fedhaw.experiments.running import run_recipe
from fedhaw.experiments.sharing import Sharing
from fedhaw.rules.registry import UnknownRule

__all__ = [
    "Recipe",
    "RecipeError",
    "RuleChoice",
    "Sharing",
    "UnknownRule",
    "build_rule",
    "read_recipe",
    "run_recipe",
]

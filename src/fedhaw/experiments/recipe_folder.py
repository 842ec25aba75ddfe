"""The folder of one run: what it is a run of, and whether it has come to its end.

Beside the history and the checkpoints lies `recipe.json`, written before the run starts. It says
which recipe and which data the folder belongs to, so that a finished run is not run again, an
interrupted one goes on, and a run of something else is never mixed in.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhaw.data import Dataset
from fedhaw.description import NOT_SET, changes, describe
from fedhaw.errors import FedhawError, shortened, words_of
from fedhaw.experiments.recipe import Recipe
from fedhaw.files import locked, write_text
from fedhaw.history import FILE_NAME, has_ended, is_too_deep
from fedhaw.settings import of_today

RECIPE_NAME = "recipe.json"
FORMAT = 1


class RecipeFolderError(FedhawError, ValueError):
    """A folder that holds something else than the run it is meant for."""


@dataclass(frozen=True)
class RecipeFolder:
    """Where one run keeps its history and checkpoints.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def history(self) -> Path:
        """The run's history."""
        return self.path / FILE_NAME

    def claim(self, recipe: Recipe, dataset: Dataset) -> None:
        """A note of what the folder is for, or a check that it is for this.

        Only the number of rounds may have grown since. A run that ended in its first round has none
        to lose, and what is asked for now takes its place: a mistake in it was mended, perhaps.
        """
        stored = self._stored()
        if stored is None and self.history.exists():
            raise RecipeFolderError(
                f"{self.path} holds a run, but no {RECIPE_NAME} that says which; choose another "
                "folder or remove it."
            )
        wanted = _wanted(recipe, dataset)
        if stored is not None:
            self._refuse_others(stored, wanted)
        if stored != wanted:
            if self.history.exists():
                with locked(self.history):  # a run under way keeps its recipe
                    pass
            write_text(self.path / RECIPE_NAME, json.dumps(wanted, indent=2) + "\n")

    def finished(self, recipe: Recipe, dataset: Dataset) -> bool:
        """Whether the run of this recipe is complete here."""
        stored = self._stored()
        if stored is None or not self.history.exists():
            return False
        self._refuse_others(stored, _wanted(recipe, dataset))
        return has_ended(self.history, recipe.settings["rounds"])

    def _stored(self) -> dict[str, Any] | None:
        path = self.path / RECIPE_NAME
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise RecipeFolderError(f"{self.path} is not a folder; choose another one.") from error
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or words_of(error)
            raise RecipeFolderError(
                f"{path} cannot be read ({reason}); remove the folder, or choose another."
            ) from error
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise RecipeFolderError(
                f"{path} is not of this version of fedhaw; choose another folder."
            )
        recipe, data = stored.get("recipe"), stored.get("data")
        known = isinstance(recipe, dict) and type(recipe.get("rounds")) is int
        if not known or not isinstance(data, dict) or is_too_deep(stored):
            raise RecipeFolderError(
                f"{path} is damaged, it does not say what was run; remove the folder, or choose "
                "another."
            )
        return stored

    def _refuse_others(self, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        of_data = changes(stored["data"], wanted["data"])
        different = {
            **changes(of_today(stored["recipe"]), wanted["recipe"]),
            **{f"data.{name}": values for name, values in of_data.items()},
        }
        done, rounds = stored["recipe"]["rounds"], wanted["recipe"]["rounds"]
        if rounds < done:
            different["rounds"] = str(done), str(rounds)
        if different and self._has_rounds():
            name, (theirs, ours) = next(iter(different.items()))
            name, theirs = shortened(name), shortened(theirs)
            raise RecipeFolderError(
                f"{self.path} holds a run {_in_words(name, theirs, ours)}; choose another folder, "
                "or remove this one."
            )

    def _has_rounds(self) -> bool:
        if any(self.path.glob("checkpoints/*.safetensors")):
            return True
        return self.history.is_file() and self.history.read_bytes().count(b"\n") > 1


def _in_words(name: str, theirs: str, ours: str) -> str:
    if name == "rule.version":
        return f"of version {theirs} of the rule's arithmetic, and this is version {ours}"
    if theirs == NOT_SET:
        return f"in which {name} is not set, and here it is {ours}"
    if ours == NOT_SET:
        return f"with {name} = {theirs}, and here it is not set"
    return f"with {name} = {theirs}, not {ours}"


def _wanted(recipe: Recipe, dataset: Dataset) -> dict[str, Any]:
    """What is noted in the folder; of the data, enough to notice another file of the same name."""
    data = {
        "name": dataset.name,
        "train": dataset.x_train.shape,
        "test": dataset.x_test.shape,
        "classes": dataset.classes,
    }
    noted = {"format": FORMAT, "recipe": recipe.described(), "data": data}
    as_read: dict[str, Any] = json.loads(json.dumps(noted, default=describe))
    return as_read

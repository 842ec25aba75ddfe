"""A folder knows which run it is for."""

import json
from pathlib import Path

import numpy as np
import pytest

import fedhaw
from fedhaw.data import from_arrays
from fedhaw.experiments.recipe import Recipe
from fedhaw.experiments.recipe_folder import RecipeFolder, RecipeFolderError
from fedhaw.files import FileWriteError, locked

DATA = from_arrays(np.zeros((6, 3)), np.arange(6) % 2, np.zeros((4, 3)), np.arange(4) % 2)
RECIPE = Recipe.of({"rule": {"name": "fedlws", "options": {"clip": [0.5, 2.0]}}, "rounds": 2})


def finished(path: Path) -> RecipeFolder:
    folder = RecipeFolder(path)
    folder.claim(RECIPE, DATA)
    folder.history.write_text(
        '{"kind":"run","format":1,"config":{}}\n{"kind":"round","round":0}\n'
        '{"kind":"round","round":1}\n{"kind":"end","status":"finished"}\n'
    )
    assert folder.finished(RECIPE, DATA)
    return folder


def test_a_changed_option_is_noticed(tmp_path: Path) -> None:
    other = RECIPE.with_(rule="fedlws")
    with pytest.raises(RecipeFolderError, match=r"rule\.options\.clip = \[0\.5, 2\.0\], not None"):
        finished(tmp_path).finished(other, DATA)
    with pytest.raises(RecipeFolderError, match="rounds = 2, not 1"):
        RecipeFolder(tmp_path).claim(RECIPE.with_(rounds=1), DATA)
    RecipeFolder(tmp_path).claim(RECIPE.with_(rounds=3), DATA)


def test_a_finished_run_of_other_arithmetic_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished(tmp_path)
    monkeypatch.setattr(fedhaw.FedLWS, "version", 2, raising=False)
    for check in (folder.finished, folder.claim):
        with pytest.raises(
            RecipeFolderError, match=r"of version 1 of the rule's arithmetic, and this is version 2"
        ):
            check(RECIPE, DATA)


def test_a_folder_of_the_first_version_is_still_the_same_run(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    file = tmp_path / "recipe.json"
    stored = json.loads(file.read_text())
    del stored["recipe"]["length_limit"]  # the first version refused no update
    file.write_text(json.dumps(stored))
    assert folder.finished(RECIPE.with_(length_limit=0), DATA)
    for check in (folder.finished, folder.claim):
        with pytest.raises(
            RecipeFolderError, match=r"length_limit is not set, and here it is 10\.0"
        ):
            check(RECIPE, DATA)


def test_a_run_without_a_round_gives_its_place_to_another(tmp_path: Path) -> None:
    folder, other = RecipeFolder(tmp_path), RECIPE.with_(rounds=1, alpha=0.5)
    folder.claim(RECIPE, DATA)
    folder.history.write_text('{"kind":"run","format":1,"config":{}}\n')
    before = (tmp_path / "recipe.json").read_bytes()
    with (
        locked(folder.history),
        pytest.raises(FileWriteError, match=r"Another run is writing .*history"),
    ):
        folder.claim(other, DATA)
    assert (tmp_path / "recipe.json").read_bytes() == before, "it is under way"
    folder.claim(other, DATA)
    assert (tmp_path / "recipe.json").read_bytes() != before
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/round-000000.safetensors").touch()
    with pytest.raises(RecipeFolderError, match=r"alpha = 0\.5, not 0\.1"):
        folder.claim(RECIPE, DATA)

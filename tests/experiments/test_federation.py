"""From recipes to the data that clients hold."""

import numpy as np
import pytest

from fedhaw.experiments.federation import load_data, run_recipe, split_data, training_data
from fedhaw.experiments.recipe import Recipe, RecipeError


def test_noise_replaces_the_labels_of_so_many_clients_and_nothing_else() -> None:
    recipe = Recipe.of({"noisy_clients": 3, "alpha": 1.0})
    clean = load_data(recipe)
    before = clean.y_train.copy()
    noisy, parts = training_data(recipe)
    np.testing.assert_array_equal(clean.y_train, before)
    assert noisy.x_train is clean.x_train
    for part, as_without in zip(parts, split_data(recipe, clean), strict=True):
        np.testing.assert_array_equal(part, as_without)
    kept = [float(np.mean(noisy.y_train[part] == before[part])) for part in parts]
    spoilt = [share for share in kept if share < 1]
    assert len(spoilt) == 3
    assert np.mean(spoilt) == pytest.approx(1 / clean.classes, abs=0.05), "by chance alone"
    again, _ = training_data(recipe.with_(seed=7))
    np.testing.assert_array_equal(again.y_train, noisy.y_train)


def test_without_noise_a_recipe_is_the_one_it_was() -> None:
    recipe = Recipe.of({})
    assert "noisy_clients" not in recipe.described()
    assert recipe.with_(noisy_clients=1).described()["noisy_clients"] == 1
    with pytest.raises(RecipeError, match="noisy_clients is 11, but there are 10 clients"):
        Recipe.of({"noisy_clients": 11})


def test_a_run_trains_on_the_noise() -> None:
    recipe = Recipe.of({"rounds": 6, "eta": 0.1, "alpha": 1.0, "rule": "fedavg"})
    ends = [
        run_recipe(recipe.with_(noisy_clients=noisy), out=None).accuracy[-1] for noisy in (0, 10)
    ]
    assert ends[0] > 0.5
    assert ends[1] < 0.3, "nobody holds a true label"

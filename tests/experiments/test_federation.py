"""From recipes to the data that clients hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedhaw.simulation.federation as federation_module
from fedhaw.experiments.compare import ComparePlan, compare
from fedhaw.experiments.recipe import Recipe, RecipeError, RuleChoice
from fedhaw.experiments.running import load_data, prepare, run_recipe


def test_noise_replaces_the_labels_of_so_many_clients_and_nothing_else() -> None:
    recipe = Recipe.of({"noisy_clients": 3, "alpha": 1.0})
    clean = load_data(recipe)
    before = clean.y_train.copy()
    federation, without = prepare(recipe), prepare(recipe.with_(noisy_clients=0))
    noisy = federation.dataset
    np.testing.assert_array_equal(clean.y_train, before)
    assert noisy.x_train is clean.x_train
    parts = [federation.holdings.rows_of(client).numpy() for client in range(10)]
    for client, part in enumerate(parts):
        np.testing.assert_array_equal(part, without.holdings.rows_of(client).numpy())
    kept = [float(np.mean(noisy.y_train[part] == before[part])) for part in parts]
    spoilt = [share for share in kept if share < 1]
    assert len(spoilt) == 3
    assert np.mean(spoilt) == pytest.approx(1 / clean.classes, abs=0.05), "by chance alone"
    again = prepare(recipe.with_(seed=7))
    np.testing.assert_array_equal(again.dataset.y_train, noisy.y_train)


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


def test_seeds_share_data_and_split_but_not_the_model() -> None:
    recipe = Recipe.of({"rule": "fedavg"})
    first = prepare(recipe)
    other, anew = first.with_seed(3), prepare(recipe.with_(seed=3))
    assert other.dataset is first.dataset
    assert other.holdings is first.holdings
    assert other.config() == anew.config()
    assert other.config()["initial_model"] != first.config()["initial_model"]


def test_a_sweep_prepares_a_federation_once_for_its_rules_and_seeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = dict.fromkeys(("dataset_of", "shared_out", "check_evaluation"), 0)

    def counting(name: str) -> Callable[..., Any]:
        original = getattr(federation_module, name)

        def counted(*arguments: Any) -> Any:
            calls[name] += 1
            return original(*arguments)

        return counted

    for name in calls:
        monkeypatch.setattr(federation_module, name, counting(name))
    recipe = Recipe.of({"rounds": 1})
    rules = (RuleChoice("fedavg"), RuleChoice("fedhaw"))
    compare(ComparePlan(recipe, rules, (0, 1), tmp_path / "out"))
    assert calls == {"dataset_of": 0, "shared_out": 1, "check_evaluation": 1}
    assert len(list(tmp_path.rglob("history.jsonl"))) == 4

"""Second names of fields."""

from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

import fedhaw
from fedhaw.experiments.recipe import Recipe

ADAM: dict[str, Any] = {"optimizer": "adam"}


def proxy(model: object) -> tuple[float, object]:
    return 0.0, model


def test_optimizer_is_optimiser() -> None:
    update = fedhaw.LocalUpdate(**ADAM)
    assert update == fedhaw.LocalUpdate(optimiser="adam")
    assert attrgetter("optimizer")(update) == "adam"
    assert replace(update, eta=0.5).optimiser == "adam"
    assert fedhaw.FedLAW(proxy, **ADAM) == fedhaw.FedLAW(proxy, optimiser="adam")


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="optimizer and optimiser, which are one"):
        fedhaw.LocalUpdate(optimiser="sgd", **ADAM)


def test_a_recipe_takes_either_name() -> None:
    def options(**given: str) -> dict[str, Any]:
        return Recipe.of({"rule": {"name": "fedlaw", "options": given}}).rule_options

    assert options(optimizer="adam") == options(optimiser="adam") != options()
    with pytest.raises(fedhaw.FedhawError, match=r"which are one\. Give one of them"):
        options(optimizer="adam", optimiser="sgd")

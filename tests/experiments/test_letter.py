"""The letter's tables as cells, and the verdict beside its numbers."""

import math
from pathlib import Path

import pytest

from fedhaw.experiments.letter import (
    DATA_NAMES,
    RUN_SIZES,
    TABLE_NAMES,
    LetterConditions,
    letter,
    letter_table,
)
from fedhaw.experiments.verdict import verdict
from fedhaw.rules.registry import UnknownRule, find


def test_published_numbers_stand_in_the_right_cells() -> None:
    table = letter_table("heterogeneous", "cifar10", LetterConditions())
    found = {(c.recipe.rule.name, c.recipe.settings["alpha"]): c.letter for c in table.cells}
    assert found["fedhaw", 1.0] == 80.15
    assert found["fedlaw", 0.1] == 70.30
    assert found["fedhyper", 0.1] == 55.29
    errors = letter_table("errors", "dogs", LetterConditions())
    by_loss = {(c.recipe.rule.name, c.recipe.settings["loss_rate"]): c.letter for c in errors.cells}
    assert by_loss["fedhaw", 0.5] == 87.14
    assert by_loss["fedavg", 0.8] == 82.33
    assert "fedadp" not in {cell.recipe.rule.name for cell in errors.cells}


def test_some_rows_of_a_table_can_be_had() -> None:
    some = LetterConditions(rules=("fedhyper", "fedavg"))
    for name in ("errors", "heterogeneous"):
        table = letter_table(name, "cifar10", some)
        assert table.rows == ("FedAvg", "FedHyper")
        assert {recipe.rule.name for recipe in table.recipes} == set(some.rules)


def test_rules_that_are_not_the_letters_stand_below_its_own() -> None:
    asked = LetterConditions(rules=("fedavgm", "fedadp", "fedhaw"))
    table = letter_table("errors", "cifar10", asked)
    assert table.rows == ("FedHAW", "FedAvgM", "FedAdp")
    assert {cell.row for cell in table.cells if cell.letter is None} == {"FedAvgM", "FedAdp"}
    over_prox = letter_table("fedprox", "dogs", asked)
    assert over_prox.rows == ("FedProx+HAW", "FedProx+FedAvgM", "FedProx+FedAdp")
    with pytest.raises(UnknownRule, match="There is no rule 'fedavgn'; did you mean"):
        letter_table("errors", "cifar10", LetterConditions(rules=("fedavgn",)))


def test_own_rules_of_one_name_have_a_row_each(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("from fedhaw import FedAvg\n\nclass MyRule(FedAvg): ...\n")
    own = [find(f"{tmp_path / name}:MyRule") for name in ("one.py", "two.py")]
    asked = LetterConditions(rules=("fedavg", *(rule.key for rule in own)))
    rows = [f"MyRule ({rule.folder})" for rule in own]
    assert letter_table("errors", "mnist", asked).rows == ("FedAvg", *rows)
    over_prox = letter_table("fedprox", "mnist", asked)
    assert over_prox.rows == ("FedProx", *(f"FedProx+{row}" for row in rows))


def test_the_full_scale_has_the_letters_settings() -> None:
    recipe = letter_table("errors", "mnist", LetterConditions()).cells[0].recipe
    assert (
        recipe.settings["rounds"],
        recipe.settings["batch"],
        recipe.settings["eta"],
        recipe.settings["split"],
    ) == (200, 64, 1e-3, "letter")
    assert recipe.settings["train_samples"] is None
    assert letter_table("errors", "mnist", LetterConditions()).notice == ""


@pytest.mark.parametrize("data", DATA_NAMES)
@pytest.mark.parametrize("scale", ["small", "tiny"])
def test_a_smaller_version_says_so(data: str, scale: str) -> None:
    for name in TABLE_NAMES:
        table = letter_table(name, data, LetterConditions(scale))  # type: ignore[arg-type]
        assert table.notice
        assert table.cells[0].recipe.settings["rounds"] < letter()["settings"][data]["rounds"]


def test_medium_keeps_the_letters_rounds_batch_eta_and_decay_on_cifar10() -> None:
    full, medium = (
        dict(letter_table("figure", "cifar10", LetterConditions(size)).cells[0].recipe.settings)
        for size in RUN_SIZES[:2]
    )
    smaller = {key for key in full if full[key] != medium[key]}
    assert smaller == {"epochs", "model", "precision", "train_samples"}
    assert not letter_table("figure", "mnist", LetterConditions("medium")).notice


def test_fedprox_is_read_in_the_letters_rounds() -> None:
    table = letter_table("fedprox", "mnist", LetterConditions(input_scale="matched"))
    haw = [cell for cell in table.cells if cell.row == "FedProx+HAW"]
    assert [cell.round_index for cell in haw] == [39, 79, 119, 159, 199]
    assert {cell.recipe.settings["client_update"] for cell in haw} == {"fedprox"}
    dogs = letter_table("fedprox", "dogs", LetterConditions()).cells[0]
    assert dogs.recipe.settings["client_update"] == "fedprox+adam"


def test_mnist_is_on_both_scales_from_one_run_except_fedlaw() -> None:
    table = letter_table("heterogeneous", "mnist", LetterConditions())
    runs: dict[tuple[str, float], set[str]] = {}
    for cell in table.cells:
        runs.setdefault((cell.recipe.rule.name, cell.recipe.settings["alpha"]), set()).add(
            cell.recipe.fingerprint()
        )
    assert {rule for (rule, _), prints in runs.items() if len(prints) == 2} == {"fedlaw"}
    assert {cell.input_scale for cell in table.cells} == {"matched", "authors"}


@pytest.mark.parametrize(
    ("mean", "std", "published", "expected"),
    [
        (88.0, 1.0, 90.0, "within"),
        (88.0, 1.0, 90.01, "below"),
        (92.0, 0.9, 90.0, "above"),
        (90.4, 0.01, 90.0, "within"),  # the floor
        (90.6, math.nan, 90.0, "above"),  # one seed
        (math.nan, math.nan, 90.0, "no number"),
        (90.0, 1.0, None, "no number"),
    ],
)
def test_verdict(mean: float, std: float, published: float | None, expected: str) -> None:
    assert verdict(mean, std, published) == expected

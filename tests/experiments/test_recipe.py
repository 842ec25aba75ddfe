"""Recipes: what is filled in, what is refused, and in which words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fedhaw
from fedhaw import FedHAW
from fedhaw.experiments.catalogue import build_rule, options, parse_option
from fedhaw.experiments.recipe import Recipe, RecipeError, read_recipe
from fedhaw.rules import Rule
from fedhaw.rules.registry import RULES


def test_the_letters_values_are_filled_in_by_data_set() -> None:
    keys = ("model", "rounds", "epochs", "eta", "client_update")

    def filled(data: str) -> tuple[object, ...]:
        values: Mapping[str, object] = {**Recipe.of({"data": data}).settings}
        return tuple(values[key] for key in keys)

    assert filled("mnist") == ("mlp", 200, 1, 1e-3, "sgd")
    assert filled("cifar10") == ("resnet18", 50, 10, 0.1, "sgd-wd")
    assert filled("stanford-dogs") == ("head", 100, 10, 5e-5, "adam")


@pytest.mark.parametrize(
    ("data", "loss_rate", "rates"),
    [
        ("mnist", 0.0, (1e-3, 1e-2)),
        ("mnist", 0.5, (1e-4, 1e-2)),
        ("cifar10", 0.0, (1e-5, 1e-2)),
        ("cifar10", 0.8, (1e-5, 1e-2)),
        ("stanford-dogs", 0.8, (1e-7, 1e-5)),
    ],
)
def test_fedhaw_gets_the_letters_meta_rates(
    data: str, loss_rate: float, rates: tuple[float, float]
) -> None:
    recipe = Recipe.of({"data": data, "loss_rate": loss_rate, "rule": "fedhaw"})
    rule = build_rule("fedhaw", recipe.rule_options, eta=recipe.settings["eta"])
    assert isinstance(rule, FedHAW)
    assert (rule.eta_gamma, rule.eta_lambda) == rates


def test_fedlaw_searches_by_sgd_for_mnist_and_by_adam_for_the_others() -> None:
    chosen = {
        data: Recipe.of({"data": data, "rule": "fedlaw"}).rule_options["optimiser"]
        for data in ("mnist", "cifar10", "stanford-dogs")
    }
    assert chosen == {"mnist": "sgd", "cifar10": "adam", "stanford-dogs": "adam"}


def test_a_given_option_goes_before_the_letters() -> None:
    recipe = Recipe.of({"rule": {"name": "fedhaw", "options": {"eta_gamma": 0.5}}})
    assert recipe.rule_options == {"eta_gamma": 0.5, "eta_lambda": 1e-2}


WRONG = [
    ('alhpa = 1', "alhpa in {file} does not exist; did you mean alpha?"),
    ("alpha = -1", "alpha in {file} is -1; it must be a number above 0."),
    ('rounds = "20"', "rounds in {file} is '20'; it must be a whole number from 1 to 1000000000."),
    ("rounds = 2.5", "rounds in {file} is 2.5; it must be a whole number from 1 to 1000000000."),
    ("seed = true", "seed in {file} is True; it must be a whole number from 0 to 4294967295."),
    ("eta = nan", "eta in {file} is nan; it must be a number above 0."),
    ("loss_rate = 2", "loss_rate in {file} is 2; it must be a number from 0 to 1."),
    ("data = 3", "data in {file} is 3; it must be text."),
    ('engine = "gpu"', "engine in {file} is 'gpu'; it must be one of 'auto', 'processes', "
     "'sequential', 'stacked'."),
    ('rule = "fedhav"', "rule in {file}: There is no rule 'fedhav'; did you mean fedhaw?"),
    ("rule = 3", "rule in {file} is 3; it must be a rule's name, or a table"),
    ('[rule]\nnam = "fedhaw"', "rule.nam in {file} does not exist; a rule has a name and options."),
    ('[rule]\nname = "fedhaw"\n[rule.options]\neta_gama = 1',
     "{file}: fedhaw has no option 'eta_gama'; did you mean eta_gamma?"),
    ('[rule]\nname = "fedhaw"\n[rule.options]\njacobian = "half"',
     "{file}: The option jacobian of fedhaw is 'half'; it must be diagonal or full."),
    ('[rule]\nname = "fedadp"\n[rule.options]\nalpha = -1', "FedAdp needs a finite number alpha"),
    ("cohort = 20", "cohort in {file} is 20, but there are 10 clients; ask for at most 10."),
    ("alpha = ", "{file} is not TOML: "),
    ("[rule]\noptions = 3", "rule.options in {file} is 3; it must be a table."),
    ("[rule]\nname = 3", "rule.name in {file} is 3; it must be text."),
    (f"seed = {'9' * 5000}", "{file} holds a number with thousands of digits"),
    (f"also_scales = {'[' * 5000}{']' * 5000}", "brackets nested thousands deep"),
    (f"also_scales = {'[' * 200}{']' * 200}", "...; it must be a list of any of"),
    ('scale = "matched"', "scale in {file} is called input_scale now; give it by that name."),
    ('optimizer = "adam"\nclient_update = "sgd"', "optimizer in {file} is another name of"),
    ('data = "a\\u0000b"', "data in {file} is 'a\\x00b'; it must be text."),
    ('model = ""', "model in {file} is ''; it must be text."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    message = str(caught.value)
    assert sentence.format(file=path) in message
    assert "\n" not in message
    assert message.endswith((".", "?"))


def test_a_file_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text("rounds = 3\r\n", encoding="utf-8-sig")
    assert read_recipe(tmp_path / "windows.toml").settings["rounds"] == 3


def test_a_missing_file_and_one_that_is_not_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nothing\.toml cannot be read: No such file"):
        read_recipe(tmp_path / "nothing.toml")
    (tmp_path / "picture.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="not text in UTF-8"):
        read_recipe(tmp_path / "picture.toml")


def test_the_fingerprint_follows_the_result_not_the_machine() -> None:
    recipe = Recipe.of({})
    same = recipe.with_(workers=2, engine="processes", data_dir="elsewhere", checkpoint_every=3)
    assert same.fingerprint() == recipe.fingerprint()
    changes: list[dict[str, object]] = [
        {"seed": 1}, {"alpha": 0.2}, {"rounds": 41}, {"rule": "fedavg"}, {"loss_rate": 0.1},
        {"rule": {"name": "fedhaw", "options": {"eta_gamma": 0.5}}},
    ]  # fmt: skip
    prints = {recipe.with_(**change).fingerprint() for change in changes}
    assert len(prints | {recipe.fingerprint()}) == len(changes) + 1


# Of the first release; a folder that was made then belongs to the same recipe now.
FINGERPRINTS: list[tuple[dict[str, object], str]] = [
    ({"rule": "fedavg"}, "20d0a4cf720723e8"),
    ({"data": "mnist", "rule": "fedavg"}, "9140891a44bef5ec"),
    ({"data": "stanford-dogs", "rule": "fedavg", "noisy_clients": 2, "seed": 7},
     "f57b07c0ccd6cebd"),
    ({"also_scales": ["authors"], "rule": "fedavg", "alpha": 1, "cohort": 3, "deadline": 5,
      "uplink": "bursty", "loss_rate": 0.1}, "0c540e3b0235a5ad"),
    ({"split": "iid", "clients": 4, "weight_decay": 0, "mu": 0.5, "client_update": "fedprox",
      "rule": "fedavg", "train_samples": 100, "workers": 3, "data_dir": "x"}, "5fb23d06e4df6aa5"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "fingerprint"), FINGERPRINTS)
def test_a_recipe_has_the_fingerprint_it_always_had(
    keys: dict[str, object], fingerprint: str
) -> None:
    # The first version refused no update.
    assert Recipe.of({**keys, "length_limit": 0}).fingerprint() == fingerprint
    assert Recipe.of(keys).fingerprint() != fingerprint


def test_stating_a_default_changes_nothing() -> None:
    stated = {"name": "fedhaw", "options": {"eta_gamma": 1e-3, "jacobian": "diagonal"}}
    assert Recipe.of({"rule": stated}).fingerprint() == Recipe.of({"rule": "fedhaw"}).fingerprint()


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_built_with_its_listed_options(name: str) -> None:
    given = {
        option.name: option.default for option in options(RULES[name]) if option.default is not None
    }
    if name == "fedhaw":
        given |= {"eta_gamma": 1e-3, "eta_lambda": 1e-2}
    rule = build_rule(name, given, eta=0.1, proxy=lambda model: (0.0, model))
    if name == "clipped":
        assert given.pop("rule") == "fedavg"
        assert rule == fedhaw.Clipped(fedhaw.FedAvg())
    assert all(getattr(rule, key) == value for key, value in given.items())


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1e-4", 1e-4), ("a=3", 3), ("a=[0.01, 0.2]", [0.01, 0.2]), ("a=full", "full")],
)
def test_option_values_are_read_as_in_toml_and_bare_words_as_text(text: str, value: object) -> None:
    assert parse_option(text) == ("a", value)


@pytest.mark.parametrize(
    ("option", "within"),
    [
        ("fedavgm", fedhaw.FedAvgM()),
        ({"name": "fedavgm", "beta": 0.5}, fedhaw.FedAvgM(0.5)),
        ({"name": "fedavgm", "options": {"beta": 0.5}}, fedhaw.FedAvgM(0.5)),
        ("fedhaw", FedHAW(1e-2, 1e-3, 1e-2)),
        ({"name": "clipped", "rule": "median", "limit": 2.0}, fedhaw.Clipped(fedhaw.Median(), 2.0)),
    ],
)
def test_a_rule_within_a_rule_by_name(option: object, within: Rule[Any]) -> None:
    recipe = Recipe.of({"rule": {"name": "clipped", "options": {"rule": option, "limit": 3}}})
    rule = build_rule("clipped", recipe.rule_options, eta=recipe.settings["eta"])
    assert rule == fedhaw.Clipped(within, 3)
    assert recipe.fingerprint() == recipe.with_().fingerprint()


def test_stating_the_rule_within_changes_nothing() -> None:
    plain = Recipe.of({"rule": "clipped"})
    for stated in ("fedavg", {"name": "fedavg"}, "fedhaw:FedAvg"):
        recipe = Recipe.of({"rule": {"name": "clipped", "options": {"rule": stated}}})
        assert recipe.fingerprint() == plain.fingerprint()
    other = Recipe.of({"rule": {"name": "clipped", "options": {"rule": "rfa"}}})
    assert other.fingerprint() != plain.fingerprint()


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("fedagv", "no rule 'fedagv'; did you mean fedavg"),
        ({"name": "fedavgm", "beta": 2}, "The options of fedavgm do not work"),
        ({"name": "fedavgm", "alpha": 2}, "fedavgm has no option 'alpha'"),
        (3, "must be the name of a rule"),
    ],
)
def test_a_rule_within_that_cannot_be_used(option: object, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        Recipe.of({"rule": {"name": "clipped", "options": {"rule": option}}})

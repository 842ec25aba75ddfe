"""Every setting is the same thing from Python, in a recipe and on the command line."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import fedhaw
from fedhaw.cli.app import app
from fedhaw.experiments import read_recipe
from fedhaw.experiments.recipe import KEYS
from fedhaw.settings import SETTINGS, SPELLINGS, InvalidSetting, Setting, fill
from fedhaw.settings.table import page

COMMANDS: Any = typer.main.get_command(app)
NAMES = pytest.mark.parametrize("name", SETTINGS)


def flags_of(command: str) -> dict[str, click.Option]:
    options = [option for option in COMMANDS.commands[command].params if option.name in SETTINGS]
    return {option.name: option for option in options}


def inside(setting: Setting) -> list[object]:
    """Values just inside a setting's limits."""
    match setting.kind:
        case "switch":
            return [True, False]
        case "list":
            return [[], list(setting.choices)]
        case "text":
            return list(setting.choices or ["x"])
        case "whole number":
            return [
                int(limit) for limit in (setting.at_least, setting.at_most) if limit is not None
            ]
        case _:
            lowest = setting.at_least if setting.above is None else setting.above + 1e-9
            limits = (lowest, setting.at_most, setting.besides)
            return [float(limit) for limit in limits if limit is not None]


def outside(setting: Setting) -> list[object]:
    """Values just outside of them."""
    match setting.kind:
        case "switch":
            return [1, "yes"]
        case "list" | "text":
            return ["nothing such"] if setting.choices else [""]
        case "whole number":
            limits = ((setting.at_least, -1), (setting.at_most, 1))
            return [int(limit) + step for limit, step in limits if limit is not None] + [1.5]
        case _:
            own = [(setting.above, 0), (setting.at_least, -1), (setting.at_most, 1)]
            between = [] if setting.besides is None else [(setting.besides + 1) / 2]
            return [*(limit + step for limit, step in own if limit is not None), *between]


BAD = [(name, value) for name, setting in SETTINGS.items() for value in outside(setting)]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """The command line, in a folder of its own; gives what it wrote to standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(fedhaw.FedhawError) as refusal:
            COMMANDS.main(list(arguments), standalone_mode=False)
        return str(refusal.value)

    yield run
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["r.toml"]), "nothing was written"


def as_flag(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_just_outside_gets_the_same_sentence_everywhere(
    call: Callable[..., str], tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        fedhaw.simulate(fedhaw.FedAvg(), **{name: value})  # type: ignore[arg-type]
    sentence = str(refusal.value)
    assert sentence.startswith(f"{name} is {value!r}; it must be ")
    flag = f"--{name.replace('_', '-')}"
    if SETTINGS[name].kind != "switch":  # a flag without a value cannot have a wrong one
        assert call("run", flag, as_flag(value)).replace(flag, name) == sentence
        if name != "seed":
            assert call("compare", flag, as_flag(value)).replace(flag, name) == sentence
    (tmp_path / "r.toml").write_text(f"{name} = {json.dumps(value)}\n")
    assert call("run", "r.toml").replace(f"{name} in r.toml", name) == sentence


@pytest.mark.parametrize(
    "name", [name for name, s in SETTINGS.items() if s.known and not s.choices]
)
def test_a_name_that_is_not_known_gets_the_same_sentence_everywhere(
    call: Callable[..., str], tmp_path: Path, name: str
) -> None:
    given: dict[str, Any] = {name: "nothing-such"}
    with pytest.raises(fedhaw.FedhawError) as refusal:
        fedhaw.simulate(fedhaw.FedAvg(), out="out", **given)
    sentence = str(refusal.value)
    assert re.match("There is no [a-z ]+ 'nothing-such'; choose one of ", sentence)
    assert all(known in sentence for known in SETTINGS[name].known)
    assert call("run", f"--{name.replace('_', '-')}", "nothing-such", "--out", "out") == sentence
    (tmp_path / "r.toml").write_text(f'{name} = "nothing-such"\n')
    assert call("run", "r.toml", "--out", "out") == sentence


@pytest.mark.parametrize("name", ["alpha", "rounds"])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_what_is_not_finite_gets_the_same_sentence_everywhere(
    call: Callable[..., str], tmp_path: Path, name: str, text: str
) -> None:
    given: dict[str, Any] = {name: float(text)}
    with pytest.raises(InvalidSetting) as refusal:
        fedhaw.simulate(fedhaw.FedAvg(), **given)
    assert str(refusal.value).startswith(f"{name} is {text}; it must be ")
    assert call("run", f"--{name}", text).replace(f"--{name}", name) == str(refusal.value)
    (tmp_path / "r.toml").write_text(f"{name} = {text}\n")
    assert call("run", "r.toml").replace(f"{name} in r.toml", name) == str(refusal.value)


def test_thousands_of_digits_are_shortened(call: Callable[..., str]) -> None:
    for flag in (["run", "--rounds"], ["run", "--alpha"], ["compare", "--seeds"]):
        assert len(call(*flag, "9" * 5000)) < 200


def test_a_shorter_flag_is_named(call: Callable[..., str]) -> None:
    said = call("data", "split", "mnist-5k", "--seed", "-1", "--out", "s.npz")
    assert said.startswith("--split-seed (--seed) is -1; it must be ")


@NAMES
def test_the_help_names_whatever_can_be_chosen(name: str) -> None:
    setting = SETTINGS[name]
    for value in setting.known:
        assert re.search(rf"\b{value}\b", setting.help), f"{name} does not speak of {value}"


@NAMES
def test_values_just_inside_are_taken_everywhere(name: str, tmp_path: Path) -> None:
    setting = SETTINGS[name]
    for value in inside(setting):
        among = {"clients": 10**9} if name in ("cohort", "noisy_clients") else {}
        python: Any = fill({name: value, **among}, objects=True)
        toml = "\n".join(f"{k} = {json.dumps(v)}" for k, v in {name: value, **among}.items())
        (tmp_path / "r.toml").write_text(toml)
        file: Any = read_recipe(tmp_path / "r.toml").settings
        assert python == file
        assert python[name] == value
        if not isinstance(value, (list, bool)):
            assert setting.checked(setting.from_flag(as_flag(value)), name) == value


@NAMES
def test_every_place_has_every_setting(name: str) -> None:
    setting = SETTINGS[name]
    keyword = inspect.signature(fedhaw.simulate).parameters[name]
    assert keyword.default == (... if setting.by_data else setting.default)
    assert f"{name}: " in str(fedhaw.simulate.__doc__)
    assert name in KEYS
    for command in ("run", "compare"):
        if (command, name) == ("compare", "seed"):
            continue  # it has --seeds
        option = flags_of(command)[name]
        assert setting.flag in option.opts
        assert str(option.help).startswith(setting.help)
        for spelling, of in SPELLINGS.items():
            assert (f"--{spelling}" in option.opts) == (of == name)
    assert f"| `{name}`" in page()


def test_the_page_of_settings_is_the_declaration() -> None:
    written = Path(__file__).parents[2] / "docs" / "settings.md"
    assert written.read_text(encoding="utf-8") == page(), (
        "python -m fedhaw.settings > docs/settings.md"
    )


@pytest.mark.parametrize("data", ["mnist-5k", "mnist", "cifar10", "stanford-dogs", "my-own.npz"])
def test_defaults_are_the_same_everywhere(tmp_path: Path, data: str) -> None:
    (tmp_path / "r.toml").write_text(f'data = "{data}"\n')
    assert fill({"data": data}, objects=True) == read_recipe(tmp_path / "r.toml").settings


def test_a_default_is_within_its_own_limits() -> None:
    for name, setting in SETTINGS.items():
        for value in (setting.default, *setting.by_data.values()):
            if value is not None:
                assert setting.checked(value, name) == (list(value) if value == () else value)


@NAMES
def test_what_is_completed_is_allowed(name: str) -> None:
    from fedhaw.cli.options import complete

    setting = SETTINGS[name]
    if setting.choices or setting.known:
        completed = complete(name)("")
        assert completed
        first = completed[0]
        assert complete(name)(first[:2])[0].startswith(first[:2])
        for value in completed:
            setting.checked(value, name)


def test_optimizer_is_another_name_of_client_update(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('optimizer = "adam"\n')
    assert read_recipe(tmp_path / "r.toml").settings["client_update"] == "adam"
    assert fill({"optimizer": "adam"}) == fill({"client_update": "adam"})
    assert "--optimizer" in flags_of("run")["client_update"].opts


def test_the_library_below_has_the_same_defaults() -> None:
    from fedhaw import LocalUpdate
    from fedhaw.clients import named
    from fedhaw.data.by_name import DEFAULT_CLIENTS

    plain: Any = fill({"data": "my-own.npz", "client_update": "fedprox"})
    update = LocalUpdate()
    assert (update.eta, update.epochs, update.batch) == tuple(
        plain[name] for name in ("eta", "epochs", "batch")
    )
    proximal = named("fedprox")
    assert isinstance(proximal, LocalUpdate)
    assert proximal.proximal == plain["mu"]
    assert plain["clients"] == DEFAULT_CLIENTS


@pytest.mark.parametrize(
    "wrong", [{"eta": 0.0}, {"momentum": 0.99995}, {"batch": 10**10}], ids=lambda wrong: str(*wrong)
)
def test_an_update_that_is_an_object_has_the_same_limits(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    sentence = re.escape(f"is {value}; it must be {SETTINGS[name].allowed}.")
    with pytest.raises(InvalidSetting, match=f"^{name} of client_update {sentence}$"):
        fedhaw.simulate(fedhaw.FedAvg(), client_update=fedhaw.LocalUpdate(**wrong))


@pytest.mark.parametrize("name", ["checkpoint_every", "length_limit", "seed"])
def test_what_flower_has_too_has_the_same_limits_there(name: str) -> None:
    strategy: Any = pytest.importorskip("fedhaw.flower").RuleStrategy
    for value in outside(SETTINGS[name]):
        sentence = re.escape(f"{name} is {value}; it must be {SETTINGS[name].allowed}.")
        with pytest.raises(InvalidSetting, match=f"^{sentence}$"):
            strategy(**{name: value})

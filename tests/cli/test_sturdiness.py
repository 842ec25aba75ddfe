"""Damaged and absurd input, made up by the hundred: one sentence each, never a traceback."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedhaw
from fedhaw.data import Dataset
from fedhaw.errors import FedhawError, named, shown, words_of
from fedhaw.experiments.catalogue import parse_option
from fedhaw.experiments.recipe import Recipe, read_recipe
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.files import write_bytes
from fedhaw.history import History, HistoryFile
from fedhaw.reports import ReportError, compare, comparison_table, to_csv, to_latex, write_report
from fedhaw.reports.page import to_page
from fedhaw.settings import SETTINGS

Call = Callable[..., Any]

hundreds = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DEEP = 10_000
NESTED = "[" * DEEP + "]" * DEEP
texts = st.text(max_size=8)
numbers = st.one_of(
    st.integers(-9, 9), st.floats(), st.just(10**400), st.just(-(2**63)), st.booleans()
)
values = st.recursive(
    st.one_of(st.none(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def is_one_sentence(text: str) -> bool:
    return len(text.splitlines()) == 1 and len(text) < 1500 and text.endswith((".", "?"))


@contextmanager
def one_sentence_at_most() -> Iterator[None]:
    said = None
    try:
        yield
    except FedhawError as error:
        said = str(error)
    assert said is None or is_one_sentence(said)


def test_a_recipe_json_of_any_content(tmp_path: Path) -> None:
    recipe = Recipe.of({"rounds": 5})
    data = Dataset("x", *(np.zeros((2, 3), np.float32), np.zeros(2, np.int64)) * 2, 2)
    folder = RecipeFolder(tmp_path)
    folder.claim(recipe, data)
    folder.history.write_text("")
    file = tmp_path / "recipe.json"
    whole = json.loads(file.read_text())
    assert not folder.finished(recipe, data)

    @hundreds
    @given(st.sampled_from(["format", "recipe", "data", "rounds", "rule", "alpha"]), values)
    def damaged(key: str, value: object) -> None:
        inner = key in ("rounds", "rule", "alpha")
        changed = {**whole["recipe"], key: value} if inner else value
        file.write_text(json.dumps({**whole, "recipe" if inner else key: changed}))
        with one_sentence_at_most():
            assert not folder.finished(recipe, data)

    damaged()
    rest = [json.dumps({k: v for k, v in whole.items() if k != key}) for key in whole]
    for text in (*rest, "", "{", "3", "[]", NESTED, f'{{"a":{NESTED}}}', "\0", '{"format":1}'):
        file.write_text(text)
        with pytest.raises(FedhawError) as refused:
            folder.finished(recipe, data)
        assert is_one_sentence(str(refused.value))
    file.unlink()
    file.mkdir()
    with pytest.raises(FedhawError, match=r"recipe\.json cannot be read \(Is a directory\)"):
        folder.finished(recipe, data)


@pytest.mark.parametrize("name", ["history.jsonl", "checkpoints", "recipe.json"])
def test_something_else_where_a_file_or_folder_of_a_run_should_be(
    call: Call, tmp_path: Path, name: str
) -> None:
    run = ["run", "--rule", "fedavg", "--rounds", "1", "--engine", "sequential", "--out", "here"]
    (tmp_path / "here").mkdir()
    place = tmp_path / "here" / name
    if name == "checkpoints":
        place.write_text("a file")
    else:
        place.mkdir()
    ended = call(*run)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.strip().splitlines()) == 1
    assert place.exists()


keys = st.sampled_from(["rounds", "alpha", "data", "rule", "metrics", "also_scales", "options"])
written = st.one_of(
    st.sampled_from(
        [
            "9" * 5000,
            "0x" + "f" * 5000,
            NESTED,
            "[" * 5000,
            "{a=" * 300 + "1" + "}" * 300,
            "1979-05-27",
            "inf",
            "-nan",
            "1e400",
            "'\ud7ff\0'",
            '"\\u0000"',
            "{name='fedhaw', options=3}",
            "{name='fedhaw', options={eta_gamma=0xF" + "F" * 3000 + "}}",
            "{name='fedhaw', options={nothing=1}}",
            "{options={eta_gamma=[[[]]]}}",
            "{name=[]}",
        ]
    ),
    st.integers().map(str),
    st.floats().map(repr),
    texts.map(json.dumps),
    st.lists(st.integers(0, 9), max_size=3).map(str),
)


@hundreds
@given(keys, written)
def test_a_recipe_of_any_content(tmp_path: Path, key: str, value: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(f"{key} = {value}\n", encoding="utf-8")
    with one_sentence_at_most():
        read_recipe(file)


@hundreds
@given(st.sampled_from(["eta_gamma", "guard", "eta", "x" * 999, "."]), written)
def test_a_rule_option_of_any_content(key: str, value: str) -> None:
    with one_sentence_at_most():
        name, parsed = parse_option(f"{key}={value}")
        Recipe.of({"rule": {"name": "fedhaw", "options": {name: parsed}}})


@pytest.mark.parametrize("flag", ["--rounds", "--alpha", "--data", "--cohort", "--rule-option"])
@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000, "0x" + "f" * 5000, "1e999", "\udcff"])
def test_an_absurd_flag(call: Call, tmp_path: Path, flag: str, value: str) -> None:
    value = f"eta_gamma={value}" if flag == "--rule-option" else value
    ended = call("run", "--rule", "fedhaw", flag, value)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.strip().splitlines()) == 1
    assert len(ended.err) < 1500
    assert not list(tmp_path.iterdir())


FLAGS = ["--rounds", "--alpha", "--seed", "--clients", "--data", "--rule", "--model", "--uplink"]
FLAGS += ["--split", "--device", "--out", "--json", "--loss-rate", "--rule-option", "--help-me"]
words = st.one_of(st.sampled_from([*FLAGS, "-", "--", "=", "\u0663", "\x1b[31m", "a.toml"]), texts)


@settings(hundreds, max_examples=100)
@given(st.lists(words, max_size=5))
def test_a_command_line_of_any_words(call: Call, tmp_path: Path, given: list[str]) -> None:
    """Whatever stands before it, the last flag is wrong, even if the one before takes a value."""
    ended = call("run", *(word.replace("\0", "") for word in given), "--batch=0", "--batch=0")
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@hundreds
@given(st.sampled_from([*SETTINGS]), st.one_of(values, st.just(Mute()), st.just(b"\xff")))
def test_a_setting_of_any_value(name: str, value: object) -> None:
    with one_sentence_at_most():
        Recipe.of({name: value})


arrays = st.sampled_from(
    [np.ones((2, 3)), np.ones(3), np.full((2, 3), np.inf), np.ones((2, 0)), [[1.0], []], "ab", None]
)


@hundreds
@given(arrays, arrays, values, values, values)
def test_a_round_of_any_content(w: Any, W: Any, n: Any, received: Any, clients: Any) -> None:
    rule = fedhaw.FedAvg()
    with one_sentence_at_most():
        rule.aggregate(rule.init(), fedhaw.Round(w, W, n, received, clients))


def round_line(number: int) -> dict[str, Any]:
    return {
        "kind": "round", "round": number, "accuracy": 0.5, "loss": 1.0, "gamma": [1.0, 2.0],
        "evaluation": {"accuracy": 0.5}, "metrics": {"trust": {"a": 1.0}},
        "weights": {"a": 0.5, "b": 0.5}, "lost": {"a": "uplink"}, "client_loss": {"a": 1.0},
        "seconds": {"train": 1.0, "aggregate": 0.1}, "bytes": {"up": 1, "down": 2}, "note": "hm",
    }  # fmt: skip


RUN = {
    "kind": "run", "format": 1, "name": "x", "rule": {"name": "fedavg"}, "seed": 0,
    "config": {"rounds": 2, "data": "d"}, "parameters": 3, "started": "2026-01-05T10:00:00Z",
    "clients": {"a": {"examples": 3, "labels": [1, 2]}, "b": {"examples": 1, "labels": [1, 0]}},
}  # fmt: skip


@hundreds
@given(st.integers(0, 2), st.data(), values)
def test_a_foreign_history_of_any_content(
    tmp_path: Path, line: int, draw: st.DataObject, value: object
) -> None:
    lines = [json.loads(json.dumps(one)) for one in (RUN, round_line(0), round_line(1))]
    key = draw.draw(st.sampled_from(list(lines[line])))
    inside = lines[line][key]
    if isinstance(inside, dict) and draw.draw(st.booleans()):
        inside[draw.draw(st.sampled_from([*inside, "new"]))] = value
    else:
        lines[line][key] = value
    file = tmp_path / "history.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    with one_sentence_at_most():
        comparison = compare([History.read(file)])
        table = comparison_table(comparison)
        assert to_page(comparison, table, "x").encode()
        assert to_csv(table).encode()
        assert to_latex(table).encode()


@pytest.mark.parametrize(
    "last", ["3", "[]", '"end"', "null", NESTED, "9" * 5000, '{"kind": "\\ud800"}', "\x00", "{"]
)
def test_a_last_line_that_is_no_object(call: Call, tmp_path: Path, last: str) -> None:
    lines = [json.dumps(RUN), json.dumps(round_line(0)), last]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    ended = call("report", ".", "--out", "there")
    assert (ended.code, ended.out) == (2, "")
    assert "Line 3 of history.jsonl" in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not (tmp_path / "there").exists()


@hundreds
@given(st.text())
def test_what_an_exception_says(text: str) -> None:
    assert len(words_of(ValueError(text)).splitlines()) <= 1


def test_an_exception_without_words_or_with_a_million() -> None:
    assert named(Mute()) == "Mute"
    assert shown(Mute()) == "a Mute"
    assert named(ValueError()) == "ValueError"
    assert len(named(ValueError("x" * 1_000_000))) < 250


@pytest.mark.parametrize("raised", ["Mute()", "ValueError('x' * 1_000_000)", "ValueError('\\n')"])
def test_a_rule_whose_exception_is_absurd(call: Call, tmp_path: Path, raised: str) -> None:
    (tmp_path / "my.py").write_text(
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError\n"
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass R:\n"
        "    def init(self): return self\n"
        f"    def aggregate(self, state, current): raise {raised}\n"
    )
    ended = call("run", "--rule", "my.py:R", "--rounds", "1", "--engine", "sequential")
    assert ended.code == 2
    assert ended.err.startswith("Your own code failed (")
    assert len(ended.err.strip().splitlines()) == 1
    assert len(ended.err) < 500


def test_a_path_with_a_null_byte(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(f"{json.dumps(RUN)}\n{json.dumps(round_line(0))}\n")
    attempts: list[Callable[[], object]] = [
        lambda: write_bytes("\0", b""),
        lambda: write_report([tmp_path], "a\0b"),
        lambda: write_report(["a\0b"], tmp_path / "out"),
        lambda: fedhaw.simulate(fedhaw.FedAvg(), out="\0"),
        lambda: HistoryFile(Path("\0")),
        lambda: History.read("\0"),
    ]
    for attempt in attempts:
        with pytest.raises(FedhawError) as refused:
            attempt()
        assert is_one_sentence(str(refused.value))
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]


@pytest.mark.parametrize("what", ["title", "notice"])
def test_words_that_are_not_utf_8(call: Call, tmp_path: Path, what: str) -> None:
    (tmp_path / "history.jsonl").write_text(f"{json.dumps(RUN)}\n{json.dumps(round_line(0))}\n")
    ended = call("report", ".", f"--{what}", "caf\udce9", "--out", "there")
    assert (ended.code, ended.out) == (2, "")
    assert f"The {what} 'caf\\udce9' is not text in UTF-8" in ended.err
    assert not (tmp_path / "there").exists()
    with pytest.raises(ReportError):
        write_report([tmp_path], tmp_path / "there", **{what: "\ud800"})  # type: ignore[arg-type]


def test_a_finished_run_made_longer_and_killed_before_its_first_new_round_goes_on(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "--rule", "fedavg", "--engine", "sequential", "--out", "here", "--rounds"]
    assert call(*command, "2").code == 0

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fedhaw.experiments.sweep.run_recipe", killed)
        assert call(*command, "4").code == 130
    assert len(History.read("here").records) == 2
    done = call(*command, "4", "--json")
    assert done.code == 0
    history = History.read("here")
    assert (len(history.records), history.rounds_planned, history.finished) == (4, 4, True)
    assert json.loads(done.out)["settings"]["rounds"] == 4
    assert json.loads((tmp_path / "here" / "recipe.json").read_text())["recipe"]["rounds"] == 4

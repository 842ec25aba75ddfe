"""What a run is said to be: every option that changed is noticed when it goes on."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from suite import RULES as SUITE

import fedhaw
from fedhaw.description import describe, differences
from fedhaw.experiments.catalogue import options
from fedhaw.rules import FedAvg, InvalidRule, Round, Rule, aggregate_surviving
from fedhaw.rules.registry import RULES


class Mode(Enum):
    SLOW = 1
    FAST = 2


@dataclass(frozen=True)
class Options:
    value: Any = None
    rounds: int = 3
    more: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Mode.SLOW, Mode.FAST),
        (Path("a"), Path("b")),
        (Fraction(1, 3), Fraction(2, 3)),
        (1 + 2j, 2 + 1j),
        (slice(0, 2), slice(0, 3)),
        ((0.5, 2.0), (0.5, 3.0)),
    ],
)
def test_a_changed_option_of_any_kind_is_noticed(before: Any, now: Any) -> None:
    assert differences(describe(Options(before)), describe(Options(now))) != []
    assert differences(describe(Options(now)), describe(Options(now))) == []


def test_an_option_called_name_leaves_the_rules_own_name_alone() -> None:
    @dataclass(frozen=True)
    class Mine:
        name: str = "blue"
        version: str = "b"

    assert describe(Mine()) == {"name": "mine", "name_": "blue", "version_": "b"}
    assert differences(describe(Mine()), describe(Mine("red"))) == ["name_: 'blue' vs 'red'"]


WORDS = ("median", "sgd", "adam", "literal", "sequential", "full", "gamma", "bfloat16", "trust")
OTHERS = (True, False, 2, 3, 0.5, 0.25, -0.5, *WORDS, (0.02, 0.3), fedhaw.FedAvgM())


def changed(rule: Rule[Any], name: str) -> Rule[Any]:
    """The rule with another value of an option, of those that it takes."""
    for other in OTHERS:
        with suppress(InvalidRule, TypeError, AttributeError):
            if other != getattr(rule, name):
                other_rule: Rule[Any] = replace(cast(Any, rule), **{name: other})
                return other_rule
    raise AssertionError(f"no other value of {name} is tried here")


@pytest.mark.parametrize("name", RULES)
def test_every_option_of_every_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = SUITE[name]
    for option in options(RULES[name]):
        others = differences(describe(rule), describe(changed(rule, option.name)))
        assert others, option.name
        assert all(option.name in difference for difference in others)
    before = describe(rule)
    monkeypatch.setattr(type(rule), "version", 99, raising=False)
    assert [difference[:8] for difference in differences(before, describe(rule))] == ["version:"]


def test_a_rules_own_rounds_are_not_those_of_the_run() -> None:
    theirs, ours = ({"rule": describe(Options(rounds=n)), "rounds": n} for n in (3, 4))
    assert differences(theirs, ours) == ["rule.rounds: 3 vs 4"]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda model, state: model, "must return the next global model and the state"),
        (lambda model, state: (model, None), "a state has clients, and weights"),
        (lambda model, state: (model, {"weights": [1]}), "a state has clients, and weights"),
    ],
)
def test_a_rule_that_returns_something_else_gets_a_sentence(returned: Any, words: str) -> None:
    class Odd:
        def init(self) -> Any:
            return FedAvg().init()

        def aggregate(self, state: Any, current: Round) -> Any:
            return returned(*FedAvg().aggregate(state, current))

    rule: Any = Odd()
    with pytest.raises(InvalidRule, match=words):
        aggregate_surviving(rule, rule.init(), Round(np.zeros(3), np.ones((2, 3)), [1, 1]))


@pytest.mark.parametrize("path", ["", "\0", "x" * 300, 3])
def test_what_is_no_path_gets_a_sentence(path: Any) -> None:
    with pytest.raises(fedhaw.HistoryError, match="is not the path"):
        fedhaw.History.read(path)
    with pytest.raises(fedhaw.FedhawError, match="out is"):
        fedhaw.simulate(fedhaw.FedAvg(), out=path)

"""What a run is said to be: every option that changed is noticed when it goes on."""

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedhaw
from fedhaw.description import describe, differences
from fedhaw.rules import FedAvg, InvalidRule, Round, aggregate_surviving


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

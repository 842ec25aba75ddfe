"""A strategy's settings, checked once."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from flwr.app import ArrayRecord, ConfigRecord, MessageType, RecordDict

from fedhaw.errors import shown
from fedhaw.files import is_path
from fedhaw.history import is_too_deep
from fedhaw.rules import Rule
from fedhaw.rules.private import Privacy
from fedhaw.settings import SETTINGS, InvalidSetting
from fedhaw.uplink import Uplink

TooFew: TypeAlias = Literal["stop", "go on"]

REPLY_LIMIT = 4.0
"""How many times as large as the model a reply may be unless the app says otherwise."""

_COUNTS = (
    "min_train_nodes", "min_evaluate_nodes", "min_available_nodes", "nodes_at_start",
    "late_rounds", "forget_after", "stop_when_lost",
)  # fmt: skip


def _a(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind) and not isinstance(value, type)


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


_Kinds: TypeAlias = Mapping[str, tuple[Callable[[Any], bool], str]]
"""By setting, whether it can have a value, and what to do where it cannot."""

_NEEDED: _Kinds = {
    "weighted_by_key": (_a(str), "it must be text"),
    "arrayrecord_key": (_a(str), "it must be text"),
    "configrecord_key": (_a(str), "it must be text"),
    "too_few_nodes": (lambda value: value in get_args(TooFew), 'choose "stop" or "go on"'),
    "roll_call": (_a(bool), "it must be True or False"),
    "statistics": (
        lambda value: isinstance(value, (tuple, list)) and _are_texts(value),
        'give a tuple of endings, such as ("running_mean", "running_var")',
    ),
}

_MAY_BE_NONE: _Kinds = {
    "rule": (_a(Rule), "give a rule such as FedAvg()"),
    "train_metrics_aggr_fn": (callable, "give a function of contents and key"),
    "evaluate_metrics_aggr_fn": (callable, "give a function of contents and key"),
    "privacy": (_a(Privacy), "give Privacy(noise_multiplier, clip)"),
    "node_clients": (
        lambda value: isinstance(value, Mapping) and _are_texts([*value, *value.values()]),
        "give the client's id for each registered name, all as text",
    ),
    "layer_of": (callable, "give a function of an array's name"),
    "uplink": (_a(Uplink), "give an uplink, such as LetterUplink(0.5)"),
    "checkpoint": (is_path, "give the path of a file"),
    "history": (
        lambda value: is_path(value) and Path(value).suffix != ".gz",
        "give the path of a file, but not .gz, for its lines are written as they come",
    ),
    "description": (_a(Mapping), 'give a mapping, such as {"name": "trial"}'),
}


def _are_facts(clients: object) -> bool:
    """Whether this is what `run_record` takes of clients: by name, how many samples and labels."""
    if not isinstance(clients, Mapping) or not _are_texts(clients):
        return False
    return all(
        isinstance(facts, Mapping)
        and (facts.get("examples") is None or _is_count(facts["examples"]))
        and isinstance(labels := facts.get("labels", ()), (tuple, list))
        and all(map(_is_count, labels))
        for facts in clients.values()
    )


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


_ENTRIES: _Kinds = {
    "name": (_a(str), "it must be text"),
    "config": (
        lambda value: isinstance(value, Mapping) and not is_too_deep(dict(value)),
        'give a mapping, such as {"rounds": 10}',
    ),
    "clients": (_are_facts, 'give the clients by name, such as {"0": {"examples": 64}}'),
}
"""Of `description`, whatever is told of a run beside its rule."""


def check_kinds(given: Mapping[str, object]) -> None:
    """A check of all arguments of a strategy that are no numbers.

    Raises:
        InvalidSetting: one of them cannot be.
    """
    for name, (holds, advice) in {**_NEEDED, **_MAY_BE_NONE}.items():
        value = given[name]
        if not holds(value) and not (value is None and name in _MAY_BE_NONE):
            raise _invalid(name, value, advice)


def _invalid(name: str, value: object, advice: str) -> InvalidSetting:
    return InvalidSetting(f"{name} is {shown(value)}; {advice}.")


@dataclass(frozen=True)
class StrategySettings:
    """The arguments of `fedhaw.flower.RuleStrategy`, which describes them."""

    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    round_deadline: float | None
    nodes_at_start: int
    nodes_timeout: float
    too_few_nodes: TooFew
    late_rounds: int
    forget_after: int
    length_limit: float
    examples_limit: float
    max_examples: float | None
    reply_limit: float
    stop_when_lost: int
    seed: int
    node_clients: Mapping[str, str] | None
    roll_call: bool
    uplink: Uplink | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    checkpoints_kept: int
    resume_from: int | None
    history: str | os.PathLike[str] | None
    description: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        for name in ("fraction_train", "fraction_evaluate"):
            share = self._is_number(name) and getattr(self, name) <= 1
            self._require(name, share, "give a share of the nodes from 0 to 1")
        for name in _COUNTS:
            count = self._is_number(name, whole=True)
            self._require(name, count, "it must be a whole number, 0 or more")
        for name in ("seed", "checkpoint_every", "length_limit"):  # as in a simulation
            SETTINGS[name].checked(getattr(self, name), name)
        some = self._is_number("checkpoints_kept", whole=True) and self.checkpoints_kept >= 1
        self._require("checkpoints_kept", some, "give a whole number, 1 or more")
        kept = self._is_number("resume_from", whole=True) and self.checkpoint is not None
        advice = "give a round that checkpoint= keeps, or 0 to start afresh"
        self._require("resume_from", self.resume_from is None or kept, advice)
        large = self._is_number("reply_limit") and 1 <= self.reply_limit < float("inf")
        self._require("reply_limit", large, "it must be a finite number, 1 or more")
        advice = "give how many times the median may count, or 0 for any"
        self._require("examples_limit", self._is_number("examples_limit"), advice)
        for name, other, advice in (
            ("nodes_timeout", False, "give a number of seconds above 0"),
            ("round_deadline", self.round_deadline is None, "give a number of seconds above 0"),
            ("max_examples", self.max_examples is None, "give a number above 0"),
        ):
            above = self._is_number(name) and getattr(self, name) > 0
            self._require(name, other or above, advice)
        if self.checkpoint is not None and self.history is not None:
            apart = Path(self.checkpoint).resolve() != Path(self.history).resolve()
            self._require("history", apart, "give another path than to checkpoint")
        for entry, value in (self.description or {}).items():
            if entry not in _ENTRIES:
                raise InvalidSetting(
                    f"description has an unknown entry {shown(entry)}; a history's first line "
                    f"takes {', '.join(_ENTRIES)}."
                )
            holds, advice = _ENTRIES[entry]
            if value is not None and not holds(value):
                raise _invalid(f"description's {entry}", value, advice)

    def _is_number(self, name: str, whole: bool = False) -> bool:
        """Whether a setting is a number, 0 or more, and neither NaN nor a bool."""
        value: Any = getattr(self, name)
        known = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        return known and bool(value >= 0)

    def _require(self, name: str, holds: bool, advice: str) -> None:
        if not holds:
            raise _invalid(name, getattr(self, name), advice)

    def share(self, kind: str) -> tuple[float, int]:
        """The share of the nodes that are asked to train or to evaluate, and how many at least."""
        if kind == MessageType.TRAIN:
            return self.fraction_train, self.min_train_nodes
        return self.fraction_evaluate, self.min_evaluate_nodes

    def content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """What nodes are sent in a round."""
        config["server-round"] = server_round
        return RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})

    def drops(self, server_round: int, client: str) -> bool:
        """Whether the emulated uplink, if there is one, loses this client's upload."""
        if self.uplink is None or not client.isdecimal():
            return False
        return bool(self.uplink.lost(self.seed, server_round - 1, [int(client)])[0])

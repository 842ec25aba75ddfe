"""The rules by lower-case name, what can be set on each, and the letter's values for it.

A rule is named in recipes and on the command line; its options are the fields of its dataclass,
except the two that the federation itself decides: the clients' learning rate and the proxy loss.
"""

import difflib
import inspect
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fedhaw.errors import FedhawError
from fedhaw.rules import (
    FedAdp,
    FedAvg,
    FedExP,
    FedHAW,
    FedHAWAuto,
    FedHyperG,
    FedLAW,
    FedLWS,
    InvalidRule,
    ProxyLoss,
    Rule,
)

RuleName: TypeAlias = Literal[
    "fedavg", "fedadp", "fedhyper", "fedlws", "fedlaw", "fedhaw", "fedexp", "fedhaw-auto"
]
Family: TypeAlias = Literal["mnist", "cifar10", "dogs"]
"""Which of the letter's three set-ups a federation is most like."""

_CLASSES: dict[str, type[Any]] = {
    "fedavg": FedAvg,
    "fedadp": FedAdp,
    "fedhyper": FedHyperG,
    "fedlws": FedLWS,
    "fedlaw": FedLAW,
    "fedhaw": FedHAW,
    "fedexp": FedExP,
    "fedhaw-auto": FedHAWAuto,
}
TITLES: dict[str, str] = {
    "fedavg": "FedAvg",
    "fedadp": "FedAdp",
    "fedhyper": "FedHyper",
    "fedlws": "FedLWS",
    "fedlaw": "FedLAW",
    "fedhaw": "FedHAW",
    "fedexp": "FedExP",
    "fedhaw-auto": "FedHAW-auto",
}
"""How each rule's name is printed, the letter's as there."""

NAMES: tuple[str, ...] = tuple(_CLASSES)
OF_THE_LETTER = NAMES[:6]

SET_BY_THE_FEDERATION = ("eta", "proxy")

_META_RATES: dict[tuple[Family, bool], tuple[float, float]] = {
    ("mnist", False): (1e-3, 1e-2),
    ("mnist", True): (1e-4, 1e-2),
    ("cifar10", False): (1e-5, 1e-2),
    ("cifar10", True): (1e-5, 1e-2),
    ("dogs", False): (1e-7, 1e-5),
    ("dogs", True): (1e-7, 1e-5),
}
"""FedHAW's (eta_gamma, eta_lambda) of the letter, by set-up and whether uploads get lost."""


class UnknownRule(FedhawError, ValueError):
    """A rule or an option of a rule that does not exist, or a value it cannot have."""


@dataclass(frozen=True)
class RuleOption:
    """One thing that can be set on a rule.

    Attributes:
        name: its key.
        kind: its type, as it is written in Python.
        default: its value when nothing is said; None also stands for "by data set", see `note`.
        note: how the default is chosen where it depends on the federation, else "".
    """

    name: str
    kind: str
    default: object
    note: str = ""


def check_rule_name(name: str) -> str:
    """The name itself, if there is such a rule.

    Raises:
        UnknownRule: there is not; the sentence suggests one.
    """
    if name in _CLASSES:
        return name
    close = difflib.get_close_matches(name.lower(), NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(NAMES)}."
    raise UnknownRule(f"There is no rule {name!r}; {hint}")


def summary(name: str) -> str:
    """One sentence on a rule: the first line of its file."""
    module = sys.modules[_CLASSES[check_rule_name(name)].__module__]
    first = (module.__doc__ or "").splitlines()[0]
    return first.partition(": ")[2].rstrip(".")


def equations(name: str) -> str:
    """The whole account of a rule at the head of its file: equations, notes and reference."""
    module = sys.modules[_CLASSES[check_rule_name(name)].__module__]
    return inspect.cleandoc(module.__doc__ or "")


def options(name: str) -> tuple[RuleOption, ...]:
    """What can be set on a rule, in the order of its dataclass."""
    cls = _CLASSES[check_rule_name(name)]
    notes = {
        ("fedhaw", "eta_gamma"): "by data set, as in the letter",
        ("fedhaw", "eta_lambda"): "by data set, as in the letter",
        ("fedlaw", "optimiser"): "sgd for MNIST and the like, adam for CIFAR-10 and Stanford Dogs",
    }
    return tuple(
        RuleOption(
            field.name,
            _written(get_type_hints(cls)[field.name]),
            None if field.default is MISSING else field.default,
            notes.get((name, field.name), ""),
        )
        for field in fields(cls)
        if field.name not in SET_BY_THE_FEDERATION
    )


def letter_options(name: str, family: Family, lossy: bool) -> dict[str, object]:
    """The letter's values of the options whose best value depends on the federation."""
    match name:
        case "fedhaw":
            eta_gamma, eta_lambda = _META_RATES[family, lossy]
            return {"eta_gamma": eta_gamma, "eta_lambda": eta_lambda}
        case "fedlaw":
            return {"optimiser": "sgd" if family == "mnist" else "adam"}
        case _:
            return {}


def check_options(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """The given options, converted to their types.

    Raises:
        UnknownRule: there is no such option, or not of this value.
    """
    hints = get_type_hints(_CLASSES[check_rule_name(name)])
    known = [option.name for option in options(name)]
    checked: dict[str, object] = {}
    for key, value in given.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            listed = f"its options are {', '.join(known)}" if known else "it has none"
            hint = f"did you mean {close[0]}?" if close else f"{listed}."
            raise UnknownRule(f"{name} has no option {key!r}; {hint}")
        try:
            checked[key] = TypeAdapter(hints[key]).validate_python(value)
        except ValidationError as error:
            raise UnknownRule(
                f"The option {key} of {name} is {value!r}; it must be {_written(hints[key])}."
            ) from error
    return checked


def build_rule(
    name: str,
    given: Mapping[str, object],
    *,
    eta: float,
    proxy: ProxyLoss | Sequence[ProxyLoss] | None = None,
) -> Rule[Any]:
    """A rule by name.

    Args:
        name: one of `NAMES`.
        given: its options.
        eta: the clients' learning rate, for FedHAW.
        proxy: the proxy loss, for FedLAW.

    Raises:
        UnknownRule: no such rule or option, or a value that the rule refuses.
    """
    values = check_options(name, given)
    if name == "fedhaw":
        values["eta"] = eta
    if name == "fedlaw":
        if proxy is None:
            raise UnknownRule("fedlaw needs a proxy loss; give the samples the server may see.")
        values["proxy"] = proxy
    try:
        rule: Rule[Any] = _CLASSES[name](**values)
    except InvalidRule as error:
        raise UnknownRule(f"The options of {name} do not work: {error}") from error
    return rule


def try_options(name: str, given: Mapping[str, object], eta: float) -> None:
    """Refuse options early, before any data is loaded.

    Raises:
        UnknownRule: as `build_rule`.
    """
    build_rule(name, given, eta=eta, proxy=_never_called)


def parse_option(text: str) -> tuple[str, object]:
    """A `key=value` of the command line; the value is written as in TOML, bare words are text.

    Raises:
        UnknownRule: there is no `=` in it.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UnknownRule(f"A rule option is written key=value, such as alpha=3; got {text!r}.")
    try:
        parsed: object = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return key.strip(), parsed


def _never_called(model: Any) -> tuple[float, Any]:
    raise AssertionError(f"only stands in for a proxy loss; asked about {model!r}")


def _written(hint: Any) -> str:
    """A type as a user would write it: the words of a Literal, the names of the others."""
    parts = get_args(hint)
    if isinstance(hint, type):
        names = {float: "a number", int: "a whole number", str: "text", tuple: "numbers"}
        return names.get(hint, "nothing" if hint is type(None) else hint.__name__)
    if getattr(hint, "__origin__", None) is Literal:
        return " or ".join(str(part) for part in parts)
    if getattr(hint, "__origin__", None) is tuple:
        return f"{len(parts)} numbers [a, b]"
    return " or ".join(_written(part) for part in parts)

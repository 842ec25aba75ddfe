"""What can be set on each rule, and the letter's values for it.

A rule is named in recipes and on the command line, see `fedhaw.rules.registry`; its options are the
fields of its dataclass, except the two that the federation itself decides: the clients' learning
rate `eta` and the proxy loss `proxy`, wherever a rule has such a field. A field that is itself a
rule is written as that rule's name, or as a table of its name and its options.
"""

import inspect
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import PydanticUserError, TypeAdapter

from fedhaw.errors import shown
from fedhaw.names import advice
from fedhaw.rules import ProxyLoss, Rule
from fedhaw.rules.registry import RuleEntry, UnknownRule, find, name_of
from fedhaw.spellings import with_own_names

Family: TypeAlias = Literal["mnist", "cifar10", "dogs"]
"""Which of the letter's three set-ups a federation is most like."""

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

_NOTES = {
    ("fedhaw", "eta_gamma"): "by data set, as in the letter",
    ("fedhaw", "eta_lambda"): "by data set, as in the letter",
    ("fedlaw", "optimiser"): "sgd for MNIST and the like, adam for CIFAR-10 and Stanford Dogs",
}
"""How the default of a rule's option is chosen, where it depends on the federation."""


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


def summary(rule: RuleEntry) -> str:
    """One sentence on a rule: the first line of its file, or else of its class."""
    first = equations(rule).partition("\n")[0]
    return (first.partition(": ")[2] or first).rstrip(".")


def equations(rule: RuleEntry) -> str:
    """The whole account of a rule at the head of its file: equations, notes and reference."""
    described = sys.modules[rule.cls.__module__].__doc__ or rule.cls.__doc__
    return inspect.cleandoc(described or rule.title)


def options(rule: RuleEntry) -> tuple[RuleOption, ...]:
    """What can be set on a rule, in the order of its dataclass."""
    hints = _hints(rule)
    return tuple(
        RuleOption(
            field.name,
            _written(hints[field.name]),
            _default(field),
            _NOTES.get((rule.key, field.name), ""),
        )
        for field in _fields(rule)
        if field.name not in SET_BY_THE_FEDERATION
    )


def needs_proxy(rule: RuleEntry) -> bool:
    """Whether the federation has to give the rule a proxy loss."""
    return any(field.name == "proxy" for field in _fields(rule))


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


def filled_options(
    name: str, given: Mapping[str, object], family: Family, lossy: bool
) -> dict[str, object]:
    """The given options, and the letter's values of those that are not given.

    A rule within the rule becomes a table of its name and all its options.
    """
    rule = find(name)
    filled = {**letter_options(name, family, lossy), **check_options(rule, given)}
    for key, (within, theirs) in _rules_within(rule, filled).items():
        defaults = {
            option.name: option.default
            for option in options(find(within))
            if option.default is not None
        }
        filled[key] = {"name": within, **defaults, **filled_options(within, theirs, family, lossy)}
    return filled


def entries(name: str, given: Mapping[str, object]) -> tuple[RuleEntry, ...]:
    """The rule of a name, and those within it by its options."""
    rule = find(name)
    within = _rules_within(rule, given).values()
    return (rule, *(entry for choice in within for entry in entries(*choice)))


def check_options(rule: RuleEntry, given: Mapping[str, object]) -> dict[str, object]:
    """The given options, converted to their types."""
    hints = _hints(rule)
    known = [option.name for option in options(rule)]
    checked: dict[str, object] = {}
    for key, value in _with_own_names(rule, given).items():
        if key not in known:
            hint = advice(key, known) if known else "it has none."
            raise UnknownRule(f"{rule.name} has no option {shown(key)}; {hint}")
        if _is_a_rule(hints[key]):
            checked[key] = value
            continue
        try:
            checked[key] = TypeAdapter(hints[key]).validate_python(value)
            if isinstance(value, bool) and not isinstance(checked[key], bool):
                raise ValueError("a bool is no number")
        except ValueError as error:
            raise UnknownRule(
                f"The option {key} of {rule.name} is {shown(value)}; it must be "
                f"{_written(hints[key])}."
            ) from error
        except PydanticUserError as error:
            raise UnknownRule(
                f"The option {key} of {rule.name} is of a type that cannot be written here, "
                f"{_written(hints[key])}; leave it at its default."
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
        name: see `fedhaw.rules.registry.find`.
        given: its options.
        eta: the clients' learning rate, for rules with a field `eta`.
        proxy: the proxy loss, for rules with a field `proxy`.

    Raises:
        UnknownRule: no such rule or option, or a value that the rule refuses.
    """
    rule = find(name)
    values = check_options(rule, given)
    by_name = {field.name: field for field in _fields(rule)}
    if "eta" in by_name:
        values["eta"] = eta
    if "proxy" in by_name:
        if proxy is None:
            raise UnknownRule(
                f"{rule.name} needs a proxy loss; give the samples the server may see."
            )
        values["proxy"] = proxy
    for key, (within, theirs) in _rules_within(rule, values).items():
        values[key] = build_rule(within, theirs, eta=eta, proxy=proxy)
    for field in by_name.values():
        if field.name not in values and field.default is field.default_factory is MISSING:
            raise UnknownRule(f"{rule.name} needs the option {field.name}; it has no default.")
    try:
        return rule.cls(**values)
    except Exception as error:  # a user's own rule may raise what it likes
        raise UnknownRule(f"The options of {rule.name} do not work: {error}") from error


def try_options(name: str, given: Mapping[str, object], eta: float) -> None:
    """An early check of options, before any data is loaded; wrong ones are refused."""
    build_rule(name, given, eta=eta, proxy=_never_called)


def parse_option(text: str) -> tuple[str, object]:
    """A `key=value` of the command line; the value is written as in TOML, bare words are text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UnknownRule(
            f"A rule option is written key=value, such as alpha=3; got {shown(text)}."
        )
    try:
        parsed: object = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # no TOML, thousands of digits or of nested brackets
        parsed = value.strip()
    return key.strip(), parsed


def _with_own_names(rule: RuleEntry, given: Mapping[str, object]) -> dict[str, object]:
    try:
        return with_own_names(rule.cls, given)
    except TypeError as error:
        raise UnknownRule(f"{error} Give one of them.") from error


def _never_called(model: Any) -> tuple[float, Any]:
    raise AssertionError(f"only stands in for a proxy loss; asked about {model!r}")


def _fields(rule: RuleEntry) -> tuple[Field[Any], ...]:
    cls: type = rule.cls
    return tuple(field for field in fields(cls) if field.init) if is_dataclass(cls) else ()


def _hints(rule: RuleEntry) -> dict[str, Any]:
    try:
        return get_type_hints(rule.cls)
    except NameError as error:
        raise UnknownRule(
            f"A type of {rule.key} cannot be found ({error}); import it where the class stands."
        ) from error


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        made: object = field.default_factory()
        return name_of(type(made)) if is_dataclass(made) else made
    return None if field.default is MISSING else field.default


def _rules_within(
    rule: RuleEntry, given: Mapping[str, object]
) -> dict[str, tuple[str, dict[str, object]]]:
    """By option that is a rule itself: the name of that rule, and its options."""
    hints = _hints(rule)
    within: dict[str, tuple[str, dict[str, object]]] = {}
    for field in _fields(rule):
        if not _is_a_rule(hints[field.name]):
            continue
        match given.get(field.name, _default(field)):
            case str(name):
                within[field.name] = find(name).key, {}
            case {"name": str(name), **theirs}:
                if theirs.keys() == {"options"} and isinstance(theirs["options"], Mapping):
                    theirs = dict(theirs["options"])  # as a recipe writes its rule
                within[field.name] = find(name).key, {str(k): v for k, v in theirs.items()}
            case other:
                raise UnknownRule(
                    f"The option {field.name} of {rule.name} is {shown(other)}; it must be "
                    f"{_written(hints[field.name])}."
                )
    return within


def _is_a_rule(hint: object) -> bool:
    return Rule in (hint, get_origin(hint))


def _written(hint: object) -> str:
    """A type as a user would write it: the words of a Literal, the names of the others."""
    parts, origin = get_args(hint), get_origin(hint)
    if _is_a_rule(hint):
        return 'the name of a rule, or {name="fedavgm", beta=0.5}'
    plain: dict[object, str] = {
        float: "a number",
        int: "a whole number",
        str: "text",
        bool: "true or false",
    }
    if hint in plain:
        return plain[hint]
    if hint is type(None):
        return "nothing"
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin is tuple and set(parts) <= {float, int}:
        return f"{len(parts)} numbers [a, b]"
    if origin in (Union, UnionType):
        return " or ".join(map(_written, parts))
    return hint.__name__ if isinstance(hint, type) and not parts else str(hint)

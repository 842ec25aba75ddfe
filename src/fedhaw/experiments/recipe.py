"""A recipe: a federation and its rule, from flags or from a TOML file.

    data = "mnist"
    alpha = 0.1
    rounds = 200
    loss_rate = 0.8

    [rule]
    name = "fedhaw"

    [rule.options]
    eta_gamma = 1e-4

Its keys are the settings of `fedhaw.settings` and the rule. Reading and checking a recipe starts
nothing and loads no data; `fedhaw.experiments.running` runs it.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fedhaw.description import describe, version
from fedhaw.errors import shown
from fedhaw.experiments.catalogue import Family, entries, filled_options, options, try_options
from fedhaw.names import UnknownName, fingerprint, is_reference
from fedhaw.rules.registry import DEFAULT, RuleEntry, UnknownRule, find
from fedhaw.settings import (
    SETTINGS,
    FederationSettings,
    InvalidSetting,
    Place,
    by_name,
    described,
    fill,
)
from fedhaw.uplink import may_lose

RecipeError = InvalidSetting
"""A recipe that cannot be used; the sentence names the file or flag, the key and the remedy."""


@dataclass(frozen=True)
class RuleChoice:
    """A rule by name, with the options that differ from the letter's.

    Attributes:
        name: of `fedhaw.rules.registry.RULES`, or where a user's own stands.
        options: the fields of the rule's dataclass.
    """

    name: str = DEFAULT
    options: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, place: Place = str) -> Self:
        """The rule that a recipe's key `rule` names.

        Raises:
            RecipeError: it is neither a name nor a table of a name and options.
        """
        if isinstance(value, str):  # rule = "fedhaw", when there are no options
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise RecipeError(
                f"{place('rule')} is {shown(value)}; it must be a rule's name, or a table of its "
                "name and options."
            )
        for key in value:
            if key not in ("name", "options"):
                raise RecipeError(
                    f"{place(f'rule.{key}')} does not exist; a rule has a name and options."
                )
        name, given = value.get("name", cls.name), value.get("options", {})
        if not isinstance(name, str):
            raise RecipeError(f"{place('rule.name')} is {shown(name)}; it must be text.")
        if not isinstance(given, Mapping):
            raise RecipeError(f"{place('rule.options')} is {shown(given)}; it must be a table.")
        try:
            return cls(find(name).key, given)
        except (UnknownRule, UnknownName) as error:
            raise RecipeError(f"{place('rule')}: {error}") from error

    @property
    def entry(self) -> RuleEntry:
        """The rule itself, and what it is called."""
        return find(self.name)


@dataclass(frozen=True, eq=False)
class Recipe:
    """One federation under one rule.

    Attributes:
        rule: the server rule and its options.
        settings: every setting of the federation.
    """

    rule: RuleChoice
    settings: FederationSettings

    @property
    def family(self) -> Family:
        """Which of the letter's set-ups this is most like; decides the defaults of the rules."""
        data, model = self.settings["data"], str(self.settings["model"])
        update = str(self.settings["client_update"])
        if data == "stanford-dogs" or model == "head" or "adam" in update:
            return "dogs"
        if data == "cifar10" or model.startswith("resnet"):
            return "cifar10"
        return "mnist"

    @property
    def rule_options(self) -> dict[str, Any]:
        """The rule's options with everything filled in that depends on the federation."""
        lossy = may_lose(self.settings["uplink"], self.settings["loss_rate"])
        return filled_options(self.rule.name, self.rule.options, self.family, lossy)

    @classmethod
    def of(cls, values: Mapping[str, object], place: Place = str, origin: str = "") -> Self:
        """A recipe of values, which are checked.

        Args:
            values: by key.
            place: how a key is called in a message, default as it is.
            origin: the file they come from, named where the trouble is not with one key.

        Raises:
            RecipeError: an unknown key, a wrong type, or a value out of range.
        """
        stated = {key: value for key, value in values.items() if key != "rule"}
        settings = fill(stated, place, known=KEYS)
        recipe = cls(RuleChoice.of(values.get("rule", {}), place), settings)
        try:
            try_options(recipe.rule.name, recipe.rule_options, settings["eta"])
        except UnknownRule as error:
            raise RecipeError(f"{origin}: {error}" if origin else str(error)) from error
        return recipe

    def with_(self, **changes: object) -> Self:
        """This recipe with some keys changed, checked again."""
        rule = {"name": self.rule.name, "options": self.rule.options}
        return type(self).of({**self.settings, "rule": rule, **changes})

    def described(self) -> dict[str, Any]:
        """Every key that changes the result, with the rule's options in full; JSON-ready."""
        defaults = {option.name: option.default for option in options(self.rule.entry)}
        rule = {
            "name": self.rule.name,
            **version(self.rule.entry.cls),
            "options": {**defaults, **self.rule_options},
        }
        values = {**described(self.settings), "rule": rule}
        rules = [entry.key for entry in entries(self.rule.name, self.rule_options)]
        named = [*rules, *(values[key] for key in ("data", "model", "client_update", "uplink"))]
        named += self.settings["metrics"]
        own = [name for name in named if isinstance(name, str) and is_reference(name)]
        if own:  # a user's own code that was changed gives another result
            values["source"] = {name: fingerprint(name) for name in own}
        return values

    def fingerprint(self) -> str:
        """16 hex digits; two recipes have the same when they ask for the same result."""
        text = json.dumps(self.described(), sort_keys=True, default=describe)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


KEYS = (*SETTINGS, "rule")
"""Every key of a recipe."""


def read_recipe_values(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a TOML file, by the settings' own names."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not text in UTF-8; is it a TOML file?") from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not TOML: {str(error).rstrip('.')}.") from error
    except (ValueError, RecursionError) as error:
        raise RecipeError(
            f"{path} holds a number with thousands of digits, or brackets nested thousands deep; "
            "write it shorter."
        ) from error
    rule = {"rule": values.pop("rule")} if "rule" in values else {}
    return by_name(values, lambda key: f"{key} in {path}", KEYS) | rule


def read_recipe(path: str | os.PathLike[str], **changes: object) -> Recipe:
    """The recipe in a TOML file, with some keys replaced.

    Raises:
        RecipeError: the file cannot be read, or something in it cannot be used.
    """
    values = {**read_recipe_values(path), **changes}
    return Recipe.of(values, lambda key: f"{key} in {path}", str(path))

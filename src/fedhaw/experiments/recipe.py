"""A recipe: everything that describes one federation, from flags or from a TOML file.

    data = "mnist"
    alpha = 0.1
    rounds = 200
    loss_rate = 0.8

    [rule]
    name = "fedhaw"

    [rule.options]
    eta_gamma = 1e-4

What a recipe does not say is filled in by data set, with the letter's values. Reading and checking
a recipe starts nothing and loads no data; `fedhaw.experiments.federation` runs it.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fedhaw.description import version
from fedhaw.errors import FedhawError
from fedhaw.experiments.catalogue import Family, entries, filled_options, options, try_options
from fedhaw.experiments.sentences import Where, first_sentence
from fedhaw.names import fingerprint, is_reference
from fedhaw.rules.lengths import LIMIT
from fedhaw.rules.registry import RuleEntry, UnknownRule, find


class RecipeError(FedhawError, ValueError):
    """A recipe that cannot be used; the sentence names the file or flag, the key and the remedy."""


class RuleChoice(BaseModel):
    """A rule by name, with the options that differ from the letter's.

    Attributes:
        name: of `fedhaw.rules.registry.RULES`, or where a user's own stands.
        options: the fields of the rule's dataclass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = "fedhaw-auto"
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return find(name).key

    @property
    def entry(self) -> RuleEntry:
        """The rule itself, and what it is called."""
        return find(self.name)


# What the letter does for each kind of data; `mnist-5k` has its own, chosen so that the rules
# differ visibly within a minute or two.
_MNIST = {"model": "mlp", "rounds": 200, "eta": 1e-3, "client_update": "sgd"}
_BY_DATA: dict[str, dict[str, object]] = {
    "mnist-5k": {
        "model": "mlp",
        "rounds": 40,
        "eta": 1e-2,
        "batch": 32,
        "client_update": "sgd",
    },
    "mnist": _MNIST,
    "fashion-mnist": _MNIST,
    "cifar10": {
        "model": "resnet18",
        "rounds": 50,
        "epochs": 10,
        "eta": 1e-1,
        "client_update": "sgd-wd",
    },
    "stanford-dogs": {
        "model": "head",
        "rounds": 100,
        "epochs": 10,
        "eta": 5e-5,
        "client_update": "adam",
    },
}

_PLACE_ONLY = ("data_dir", "engine", "workers", "device", "checkpoint_every")
"""Keys that change where and how fast a run computes, not what it computes."""


class Recipe(BaseModel):
    """One federation.

    Attributes:
        data: a data set's name, or FILE.npz. Data, model, rule and client update may also be a
            user's own, as `package.module:Name` or `file.py:Name`.
        data_dir: folder to look in first.
        train_samples: use only so many training samples, the first ones; None: all.
        split: "letter", "dirichlet", "iid", "shards", "holders", or FILE.npz[:NAME].
        split_seed: of the split; None: the letter's 1 for "letter", else 0.
        alpha: D_alpha of the Dirichlet splits.
        clients: K.
        min_size: fewest samples of a client in the "dirichlet" split.
        shards_per_client: for the "shards" split.
        noisy_clients: how many clients hold random labels.
        model: "mlp", "mlp-W-W", "logistic", "cnn", "resnet18", "resnet18-W" or "head".
        buffers: what happens to batch norm's statistics, "batch" or "average".
        input_scale: "matched" or "authors", how pixels become inputs.
        also_scales: further input scales on which the model is evaluated.
        rule: the server rule and its options.
        rounds: T.
        epochs: passes over its data a client makes in a round.
        batch: samples a step.
        eta: the clients' learning rate.
        client_update: "sgd", "sgd-wd", "adam", "fedprox", "fedprox+adam", ...
        mu: FedProx's coefficient, where the client update asks for it.
        weight_decay: in place of the client update's own.
        loss_rate: p_e, the largest loss probability of a client's uplink; 0: nothing is lost.
        uplink: "letter" (independent losses), "bursty" (Gilbert-Elliott, loss_rate of all
            uploads), or FILE.csv, a trace of lost uploads.
        burst: mean length of a burst of losses, in rounds, for "bursty".
        stand_in: what replaces a lost upload: "global", "last" or "none".
        length_limit: how many times as long as usual an update may be before it is refused; 0:
            none is.
        cohort: how many clients take part in a round, drawn anew each time; None: all.
        seed: of the initial model, the clients' randomness, the losses and the cohorts.
        engine: "auto", "sequential", "processes" or "stacked".
        workers: of the "processes" engine; None: as many as the machine has cores.
        device: "cpu", "cuda", ...
        deadline: seconds after which a client's model is too late; such a run is not repeatable.
        evaluate_every: rounds between two evaluations; the last round is always evaluated.
        per_client_accuracy: also evaluate the global model on each client's own samples.
        checkpoint_every: rounds between two checkpoints.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    data: str = Field("mnist-5k", min_length=1)
    data_dir: str | None = None
    train_samples: int | None = Field(None, ge=1)
    split: str = "letter"
    split_seed: int | None = Field(None, ge=0, lt=2**32)
    alpha: float = Field(0.1, gt=0, allow_inf_nan=False)
    clients: int = Field(10, ge=1)
    min_size: int = Field(10, ge=1)
    shards_per_client: int = Field(2, ge=1)
    noisy_clients: int = Field(0, ge=0)
    model: str = "mlp"
    buffers: Literal["batch", "average"] = "batch"
    input_scale: Literal["matched", "authors"] = "matched"
    also_scales: list[Literal["matched", "authors"]] = Field(default_factory=list)
    rule: RuleChoice = RuleChoice()
    rounds: int = Field(200, ge=1)
    epochs: int = Field(1, ge=1)
    batch: int = Field(64, ge=1)
    eta: float = Field(1e-3, gt=0, allow_inf_nan=False)
    client_update: str = "sgd"
    mu: float = Field(1e-3, ge=0, allow_inf_nan=False)
    weight_decay: float | None = Field(None, ge=0, allow_inf_nan=False)
    loss_rate: float = Field(0.0, ge=0, le=1)
    uplink: str = "letter"
    burst: float = Field(3.0, ge=1, allow_inf_nan=False)
    stand_in: Literal["global", "last", "none"] = "global"
    length_limit: float = Field(LIMIT, ge=0, allow_inf_nan=False)
    cohort: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    engine: str = "auto"
    workers: int | None = Field(None, ge=1)
    device: str = "cpu"
    deadline: float | None = Field(None, gt=0, allow_inf_nan=False)
    evaluate_every: int = Field(1, ge=1)
    per_client_accuracy: bool = False
    checkpoint_every: int = Field(10, ge=1)

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, name: str) -> str:
        if name != "auto":  # whoever names an engine needs torch in a moment anyway
            from fedhaw.simulation.engines import ENGINES

            if name not in ENGINES:
                raise PydanticCustomError("literal_error", "", {"expected": str(ENGINES)[1:-1]})
        return name

    @model_validator(mode="before")
    @classmethod
    def _fill_by_data(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        filled = {**_BY_DATA.get(str(values.get("data", "mnist-5k")), {}), **values}
        if isinstance(filled.get("rule"), str):  # rule = "fedhaw", when there are no options
            filled["rule"] = {"name": filled["rule"]}
        return filled

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.cohort is not None and self.cohort > self.clients:
            raise ValueError(
                f"A cohort of {self.cohort} cannot be drawn from {self.clients} clients; "
                f"ask for at most {self.clients}."
            )
        if self.noisy_clients > self.clients:
            raise ValueError(
                f"noisy_clients is {self.noisy_clients}, but there are {self.clients} clients; "
                f"ask for at most {self.clients}."
            )
        try_options(self.rule.name, self.rule_options, self.eta)
        return self

    @property
    def family(self) -> Family:
        """Which of the letter's set-ups this is most like; decides the defaults of the rules."""
        if self.data == "stanford-dogs" or self.model == "head" or "adam" in self.client_update:
            return "dogs"
        if self.data == "cifar10" or self.model.startswith("resnet"):
            return "cifar10"
        return "mnist"

    @property
    def rule_options(self) -> dict[str, Any]:
        """The rule's options with everything filled in that depends on the federation."""
        lossy = self.loss_rate > 0 or self.uplink not in ("letter", "bursty")
        return filled_options(self.rule.name, self.rule.options, self.family, lossy)

    @classmethod
    def of(cls, values: Mapping[str, object], where: Where = str, origin: str = "") -> Self:
        """Check values and make a recipe of them.

        Args:
            values: by key.
            where: how a key is called in a message, default as it is.
            origin: the file they come from, named where the trouble is not with one key.

        Raises:
            RecipeError: an unknown key, a wrong type, or a value out of range.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            sentence = first_sentence(error, where, list(cls.model_fields), origin)
            raise RecipeError(sentence) from error

    def with_(self, **changes: object) -> Self:
        """This recipe with some keys changed, checked again."""
        return type(self).of({**self.model_dump(), **changes})

    def described(self) -> dict[str, Any]:
        """Every key that changes the result, with the rule's options in full; JSON-ready."""
        values = self.model_dump(exclude=set(_PLACE_ONLY))
        for key in ("noisy_clients", "per_client_accuracy"):
            if not values[key]:  # runs from before there was this key are still the same runs
                del values[key]
        values["rule"] = {
            "name": self.rule.name,
            **version(self.rule.entry.cls),
            "options": _complete_options(self),
        }
        rules = [entry.key for entry in entries(self.rule.name, self.rule_options)]
        own = (*rules, self.data, self.model, self.client_update)
        if sources := {name: fingerprint(name) for name in own if is_reference(name)}:
            values["source"] = sources  # a user's own code that was changed gives another result
        return values

    def fingerprint(self) -> str:
        """16 hex digits; two recipes have the same when they ask for the same result."""
        text = json.dumps(self.described(), sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_recipe_values(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a TOML file, as they stand there.

    Raises:
        RecipeError: the file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not text in UTF-8; is it a TOML file?") from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not TOML: {str(error).rstrip('.')}.") from error


def read_recipe(path: str | os.PathLike[str], **changes: object) -> Recipe:
    """The recipe in a TOML file, with some keys replaced.

    Raises:
        RecipeError: the file cannot be read, or something in it cannot be used.
    """
    values = {**read_recipe_values(path), **changes}
    return Recipe.of(values, lambda key: f"{key} in {path}", str(path))


def _complete_options(recipe: Recipe) -> dict[str, Any]:
    defaults = {option.name: option.default for option in options(recipe.rule.entry)}
    return {**defaults, **recipe.rule_options}


__all__ = [
    "Recipe",
    "RecipeError",
    "RuleChoice",
    "UnknownRule",
    "read_recipe",
    "read_recipe_values",
]

"""From a recipe to a run: its data, its split, its rule, and the simulation itself."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedhaw.data import DataError, Dataset, load, split
from fedhaw.experiments.catalogue import build_rule, entries, needs_proxy
from fedhaw.experiments.recipe import Recipe
from fedhaw.history import History, RoundRecord
from fedhaw.names import is_reference
from fedhaw.rules import ProxyLoss, Rule

if TYPE_CHECKING:
    from fedhaw.clients import ClientUpdate
    from fedhaw.uplink import Uplink


def load_data(recipe: Recipe) -> Dataset:
    """The recipe's data set; a sweep loads it once.

    Raises:
        DataError: it is missing, damaged, or too small.
    """
    return _loaded(recipe.data, recipe.data_dir, recipe.train_samples)


@lru_cache(maxsize=2)
def _loaded(name: str, data_dir: str | None, train_samples: int | None) -> Dataset:
    dataset = load(name, data_dir)
    if train_samples is None:
        return dataset
    available = len(dataset.y_train)
    if train_samples > available:
        raise DataError(
            f"train_samples is {train_samples}, but {dataset.name} has only {available} here; ask "
            "for fewer, or put the whole data set into the data folder."
        )
    whole = dataset.y_train if dataset.whole_labels is None else dataset.whole_labels
    return replace(
        dataset,
        x_train=dataset.x_train[:train_samples],
        y_train=dataset.y_train[:train_samples],
        holders=None if dataset.holders is None else dataset.holders[:train_samples],
        whole_labels=whole,
    )


def split_data(recipe: Recipe, dataset: Dataset) -> list[NDArray[np.int64]]:
    """Who holds which training samples.

    Raises:
        DataError: there is no such split, or it cannot be made.
    """
    return split(
        dataset,
        recipe.split,
        recipe.clients,
        alpha=recipe.alpha,
        seed=recipe.split_seed,
        min_size=recipe.min_size,
        shards_per_client=recipe.shards_per_client,
    )


def training_data(recipe: Recipe) -> tuple[Dataset, list[NDArray[np.int64]]]:
    """The data as the clients hold them, and who holds which; some may have random labels.

    Raises:
        DataError: data or split cannot be had.
    """
    dataset = load_data(recipe)
    parts = split_data(recipe, dataset)
    if not recipe.noisy_clients:
        return dataset, parts
    # Not the seed of the run: like the split, the noise belongs to the data.
    random = np.random.default_rng([recipe.noisy_clients, recipe.split_seed or 0])
    y_train = dataset.y_train.copy()
    for client in random.choice(len(parts), recipe.noisy_clients, replace=False):
        y_train[parts[client]] = random.integers(dataset.classes, size=len(parts[client]))
    return replace(dataset, y_train=y_train), parts


def rule_from_recipe(
    recipe: Recipe, proxy: ProxyLoss | Sequence[ProxyLoss] | None = None
) -> Rule[Any]:
    """The recipe's rule, with the letter's values for what the recipe leaves open.

    Args:
        recipe: the federation.
        proxy: the proxy loss, for rules that ask for one.

    Raises:
        UnknownRule: a rule that asks for a proxy loss has got none.
    """
    return build_rule(recipe.rule.name, recipe.rule_options, eta=recipe.eta, proxy=proxy)


def uplink_from_recipe(recipe: Recipe) -> "Uplink | None":
    """The recipe's uplink; None when nothing can get lost.

    Raises:
        InvalidUplink: a trace that cannot be read, or bursts that cannot be.
    """
    from fedhaw.uplink import BurstyUplink, LetterUplink, RecordedUplink

    match recipe.uplink:
        case "letter":
            return LetterUplink(recipe.loss_rate) if recipe.loss_rate else None
        case "bursty":
            return BurstyUplink.bursts(recipe.loss_rate, recipe.burst) if recipe.loss_rate else None
        case trace:
            return RecordedUplink.read(trace)


def check_recipe(recipe: Recipe) -> None:
    """Find out, before anything is written, what a run would refuse.

    Raises:
        FedhawError: data, split, model, client update or uplink cannot be used.
    """
    import torch

    from fedhaw.models import build

    dataset = load_data(recipe)
    split_data(recipe, dataset)
    client_update(recipe)
    uplink_from_recipe(recipe)
    # Shapes alone, so that nothing is allocated; a user's own model may want real numbers.
    with nullcontext() if is_reference(recipe.model) else torch.device("meta"):
        build(recipe.model, dataset.input_shape, dataset.classes)


def client_update(recipe: Recipe) -> "ClientUpdate":
    """What a client does.

    Raises:
        InvalidUpdate: there is no such update.
    """
    from fedhaw.clients import by_name

    return by_name(
        recipe.client_update,
        eta=recipe.eta,
        epochs=recipe.epochs,
        batch=recipe.batch,
        mu=recipe.mu,
        weight_decay=recipe.weight_decay,
    )


def run_recipe(
    recipe: Recipe,
    out: Path | None,
    on_round: Callable[[RoundRecord], None] | None = None,
    name: str | None = None,
) -> History:
    """Run a recipe; one that was interrupted in the same folder goes on.

    Args:
        recipe: the federation.
        out: folder of the history and the checkpoints; None keeps nothing.
        on_round: is given each round's record.
        name: what the run is called in reports, default the rule's name.

    Raises:
        FedhawError: something cannot be used; see `fedhaw.simulate`.
    """
    from fedhaw.simulation import Federation, simulate

    entry = recipe.rule.entry

    def rule(federation: Federation) -> Rule[Any]:
        asked = any(map(needs_proxy, entries(recipe.rule.name, recipe.rule_options)))
        proxy = federation.proxy_losses() if asked else None
        return rule_from_recipe(recipe, proxy)

    dataset, parts = training_data(recipe)
    return simulate(
        rule,
        dataset,
        model=recipe.model,
        clients=recipe.clients,
        split=recipe.split if _named_in_full(recipe) else parts,
        alpha=recipe.alpha,
        split_seed=recipe.split_seed,
        update=client_update(recipe),
        uplink=uplink_from_recipe(recipe),
        stand_in=recipe.stand_in,
        length_limit=recipe.length_limit,
        cohort=recipe.cohort,
        rounds=recipe.rounds,
        seed=recipe.seed,
        buffers=recipe.buffers,
        scale=recipe.input_scale,
        also_scales=recipe.also_scales,
        evaluate_every=recipe.evaluate_every,
        per_client_accuracy=recipe.per_client_accuracy,
        engine=recipe.engine,
        workers=recipe.workers,
        deadline=recipe.deadline,
        device=recipe.device,
        out=out,
        checkpoint_every=recipe.checkpoint_every,
        name=name or (entry.title if entry.reference else entry.name),
        on_round=on_round,
    )


def _named_in_full(recipe: Recipe) -> bool:
    """Whether the split's name says all, so that the history can say it too."""
    further = ("min_size", "shards_per_client", "noisy_clients")
    return all(getattr(recipe, key) == Recipe.model_fields[key].default for key in further)

"""The parts of a federation, made of its settings."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedhaw import names
from fedhaw.clients import ClientUpdate, by_name
from fedhaw.clients.registry import is_client_update
from fedhaw.data import Dataset, beginning, load, split, with_noisy_clients
from fedhaw.errors import FedhawError, named, words_of
from fedhaw.models import EvaluationMetric, Evaluator, Layout, Loss, build
from fedhaw.models.layout import EVALUATION_BATCH
from fedhaw.models.precision import in_bfloat16
from fedhaw.settings import SETTINGS, FederationSettings
from fedhaw.simulation.errors import InvalidSimulation


def device_of(device: str | torch.device) -> torch.device:
    """The device, if there is one here."""
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InvalidSimulation(
            f'The device {str(device)!r} cannot be used ({words_of(error)}); choose "cpu".'
        ) from error
    return place


def dataset_of(settings: FederationSettings) -> Dataset:
    """The data set of the settings, as it comes."""
    data = settings["data"]
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, str):
        raise InvalidSimulation(
            f"data is a {type(data).__name__}; give a data set's name, FILE.npz, or a Dataset made "
            "with fedhaw.data.from_arrays."
        )
    folder = settings["data_dir"]
    return load(data, None if folder is None else os.fspath(folder))


def shared_out(
    settings: FederationSettings, dataset: Dataset
) -> tuple[Dataset, list[NDArray[np.int64]]]:
    """The data as the clients hold them, and who holds which of the training samples."""
    samples = settings["train_samples"]
    if samples is not None:
        dataset = beginning(dataset, samples)
    parts = _parts(settings, dataset)
    noisy = settings["noisy_clients"]
    if noisy > len(parts):
        raise InvalidSimulation(
            f"noisy_clients is {noisy}, but there are {len(parts)} clients; ask for at most "
            f"{len(parts)}."
        )
    return with_noisy_clients(dataset, parts, noisy, settings["split_seed"]), parts


def initial_module(settings: FederationSettings, dataset: Dataset) -> nn.Module:
    """The model as it is before the first round; its values depend on the seed alone."""
    module = _seeded_module(settings, dataset)
    return in_bfloat16(module) if settings["precision"] == "bfloat16" else module


def _seeded_module(settings: FederationSettings, dataset: Dataset) -> nn.Module:
    model = settings["model"]
    if isinstance(model, nn.Module):
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings["seed"])
        if isinstance(model, str):
            return build(model, dataset.input_shape, dataset.classes)
        module = _made(model) if callable(model) else None
    if not isinstance(module, nn.Module):
        raise InvalidSimulation(
            f"model is {model!r}; give a model's name, a torch module, or a function without "
            "arguments that returns one."
        )
    return module


def update_of(settings: FederationSettings) -> ClientUpdate:
    """What a client does with the global model."""
    update = settings["client_update"]
    if isinstance(update, str):
        values = cast(Mapping[str, object], settings)
        own = [s.name for s in SETTINGS.values() if s.told_by == "client_update"]
        return by_name(update, {name: values[name] for name in own})
    if not is_client_update(update):
        raise InvalidSimulation(
            f"client_update is {update!r}; give its name, a LocalUpdate, a ClientAlgorithm, or a "
            "function (module, x, y, generator) -> loss."
        )
    return update


def metrics_of(settings: FederationSettings) -> Mapping[str, EvaluationMetric]:
    """The user's own evaluation metrics by name; one of a file has the name it has there."""
    metrics = settings["metrics"]
    if isinstance(metrics, Mapping):
        return metrics
    if not isinstance(metrics, list) or not all(isinstance(name, str) for name in metrics):
        raise InvalidSimulation(f"metrics is {metrics!r}; give functions by name.")
    found = {reference.rpartition(":")[2]: names.load(reference) for reference in metrics}
    if len(found) < len(metrics):
        raise InvalidSimulation(f"Two of metrics {metrics!r} have one name; rename one of them.")
    return cast(Mapping[str, EvaluationMetric], found)  # `ModelEvaluation` tries them


def check_evaluation(
    module: nn.Module, layout: Layout, loss: Loss, model: Tensor, x: Tensor, y: Tensor
) -> None:
    """A check that a module fits the (M, ...) test samples and their (M,) labels."""
    evaluator = Evaluator(module, layout, loss, model.device)
    # A batch with the largest label in it, which a module with too few outputs cannot handle,
    # and the last batch, which may be too small for a module.
    rows = torch.argsort(y, descending=True, stable=True)[:EVALUATION_BATCH]
    last = min(evaluator.batches(len(y))[-1], EVALUATION_BATCH)
    try:
        evaluator(model, x[rows], y[rows])
        evaluator(model, x[-last:], y[-last:])
    except Exception as error:
        reason = words_of(error) or type(error).__name__
        raise InvalidSimulation(
            f"{type(module).__name__} cannot be evaluated on samples of shape "
            f"{tuple(x.shape[1:])} with labels up to {int(y.max())} ({reason}); choose a model "
            "that fits the data."
        ) from error


def _parts(settings: FederationSettings, dataset: Dataset) -> list[NDArray[np.int64]]:
    how, clients = settings["split"], settings["clients"]
    if isinstance(how, str):
        return split(
            dataset,
            how,
            clients,
            alpha=settings["alpha"],
            seed=settings["split_seed"],
            min_size=settings["min_size"],
            shards_per_client=settings["shards_per_client"],
        )
    if not isinstance(how, Sequence) or not len(how):
        raise InvalidSimulation(
            f"split is {how!r}; give a split's name, or a list of index arrays, one a client."
        )
    if clients not in (None, len(how)):
        raise InvalidSimulation(
            f"clients is {clients}, but split holds {len(how)} arrays; leave clients out."
        )
    return [_indices(part, client, len(dataset.y_train)) for client, part in enumerate(how)]


def _indices(part: ArrayLike, client: int, samples: int) -> NDArray[np.int64]:
    try:
        indices = np.asarray(part)
    except ValueError:  # a list of lists of different lengths
        indices = np.empty(1, dtype=np.object_)
    if indices.size == 0:
        return np.zeros(0, dtype=np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise InvalidSimulation(
            f"The split of client {client} is {indices.dtype} of shape {indices.shape}; give a "
            "list of whole numbers, the indices of its samples."
        )
    if indices.min() < 0 or indices.max() >= samples:
        raise InvalidSimulation(
            f"The split of client {client} names samples {indices.min()} to {indices.max()}, but "
            f"the training samples are 0 to {samples - 1}."
        )
    return indices.astype(np.int64)


def _made(function: Callable[[], nn.Module]) -> nn.Module:
    try:
        return function()
    except FedhawError:
        raise
    except Exception as error:
        raise InvalidSimulation(
            f"model is {function!r}, which failed ({named(error)}); give a "
            "function without arguments that returns a torch module, or the module itself."
        ) from error

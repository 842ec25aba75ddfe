"""What is simulated: a data set shared out over clients, and a model that they train.

The initial model depends on the seed alone, the split on its own seed. The test set is divided
once and for all into a proxy part, which only rules with proxy data (FedLAW) may see, and an
evaluation part, on which everybody's accuracy is measured; they never overlap, and the proxy part
counts in nobody's accuracy, whichever rule is run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.clients import ClientUpdate, LocalUpdate, by_name
from fedhaw.data import Dataset, label_counts, load, proxy_split, scaled_part
from fedhaw.data import split as split_by_name
from fedhaw.data.scales import Scale
from fedhaw.description import describe, digest
from fedhaw.errors import FedhawError
from fedhaw.models import Buffers, Evaluator, Layout, Loss, build, proxy_loss
from fedhaw.models.layout import EVALUATION_BATCH
from fedhaw.rules import ProxyLoss

ModelSource: TypeAlias = str | nn.Module | Callable[[], nn.Module]
"""A model's name, a module whose values are the initial model, or a function that makes one."""

SplitSource: TypeAlias = str | Sequence[ArrayLike]
"""A split's name or file, or an array of sample indices for each client."""


class InvalidSimulation(FedhawError, ValueError):
    """An argument of `fedhaw.simulate` that cannot be."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The clients' samples, handed to the engine.

    Attributes:
        x: (N, ...) float32 samples.
        y: (N,) labels.
        parts: for each client, the indices of its samples.
    """

    x: Tensor
    y: Tensor
    parts: list[NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Federation:
    """A federation, ready to run; what a rule may be made from.

    Attributes:
        module: the model's template.
        layout: how it lies in the flat vector.
        initial_model: (P,) the first global model.
        update: what a client does with the global model.
        sizes: (K,) how many samples each client holds.
        labels: (K, classes) how many of each class.
        x_test: by scale, (M, ...) the evaluation part of the test set; the run's own scale first.
        y_test: (M,) its labels.
        x_proxy: (R, ...) the proxy part, on the run's own scale.
        y_proxy: (R,) its labels.
        loss: (outputs, labels) -> mean loss, in evaluation and on the proxy part.
        device: where to compute.
        description: all of this in JSON.
    """

    module: nn.Module
    layout: Layout
    initial_model: Tensor
    update: ClientUpdate
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64]
    x_test: Mapping[str, Tensor]
    y_test: Tensor
    x_proxy: Tensor
    y_proxy: Tensor
    loss: Loss
    device: torch.device
    description: Mapping[str, Any]

    @property
    def clients(self) -> int:
        """K."""
        return len(self.sizes)

    @property
    def eta(self) -> float | None:
        """The clients' learning rate; None for a client update of the user's own."""
        return self.update.eta if isinstance(self.update, LocalUpdate) else None

    def proxy_losses(self, batch: int = 64) -> tuple[ProxyLoss, ...]:
        """The loss of a model on each minibatch of the proxy part, for FedLAW."""
        if not len(self.y_proxy):
            raise InvalidSimulation(
                f"The rule asks for proxy data, but with only {len(self.y_test)} test samples none "
                "are set aside for it; use a larger test set or another rule."
            )
        x, y = self.x_proxy.to(self.device), self.y_proxy.to(self.device)
        # A rule has parameters only; batch norm takes the minibatch's statistics in any case.
        return proxy_loss(self.module, self.loss, x, y, batch, Layout.of(self.module))


def prepare(
    data: str | os.PathLike[str] | Dataset,
    *,
    model: ModelSource,
    clients: int | None,
    split: SplitSource,
    alpha: float,
    split_seed: int | None,
    update: str | ClientUpdate,
    eta: float,
    epochs: int,
    batch: int,
    seed: int,
    buffers: Buffers,
    scale: Scale,
    also_scales: Sequence[Scale] | Scale,
    device: str | torch.device,
    data_dir: str | os.PathLike[str] | None,
) -> tuple[Federation, TrainingData]:
    """Load, share out and check everything; see `fedhaw.simulate` for the arguments."""
    place = _device(device)
    dataset = _dataset(data, data_dir)
    also_scales = _scales(also_scales)
    parts = _parts(dataset, split, clients, alpha, split_seed)
    module = _module(model, dataset, seed)
    layout = Layout.of(module, buffers)
    initial_model = layout.flatten(module).to(place)
    if not bool(initial_model.isfinite().all()):
        raise InvalidSimulation("The initial model is not finite; check the module's values.")
    client_update = _update(update, eta, epochs, batch)
    proxy, evaluation = proxy_split(len(dataset.y_test), dataset.classes)
    x_test = {scale: scaled_part(dataset, "test", scale)}
    x_test |= {other: scaled_part(dataset, "test", other) for other in also_scales}
    y_train, y_test = torch.from_numpy(dataset.y_train), torch.from_numpy(dataset.y_test)
    arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
    federation = Federation(
        module=module,
        layout=layout,
        initial_model=initial_model,
        update=client_update,
        sizes=np.array([len(part) for part in parts], dtype=np.int64),
        labels=label_counts(dataset.y_train, parts, dataset.classes),
        x_test={name: torch.from_numpy(x[evaluation]) for name, x in x_test.items()},
        y_test=y_test[evaluation],
        x_proxy=torch.from_numpy(x_test[scale][proxy]),
        y_proxy=y_test[proxy],
        loss=client_update.loss if isinstance(client_update, LocalUpdate) else cross_entropy,
        device=place,
        description={
            "data": {"name": dataset.name, "digest": digest(*arrays)},
            "scale": scale,
            "also_scales": list(also_scales),
            "clients": len(parts),
            "split": split if isinstance(split, str) else "given",
            "alpha": alpha if split in ("letter", "dirichlet") else None,
            "split_seed": split_seed if isinstance(split, str) else None,
            "parts": digest(*parts),
            "model": model if isinstance(model, str) else type(module).__name__,
            "initial_model": digest(initial_model),
            "buffers": buffers,
            "update": describe(client_update),
            "seed": seed,
            "device": str(place),
        },
    )
    _try_to_evaluate(federation)
    x_train = torch.from_numpy(scaled_part(dataset, "train", scale))
    return federation, TrainingData(x_train, y_train, parts)


def _scales(scales: Sequence[Scale] | Scale) -> tuple[Scale, ...]:
    named = (scales,) if isinstance(scales, str) else scales
    if not isinstance(named, Sequence) or not all(isinstance(scale, str) for scale in named):
        raise InvalidSimulation(f"also_scales is {scales!r}; give a list of scales' names.")
    return tuple(named)


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidSimulation(
            f'The device {str(device)!r} cannot be used ({reason}); choose "cpu".'
        ) from error
    return place


def _dataset(
    data: str | os.PathLike[str] | Dataset, data_dir: str | os.PathLike[str] | None
) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, (str, os.PathLike)):
        raise InvalidSimulation(
            f"data is a {type(data).__name__}; give a data set's name, FILE.npz, or a Dataset made "
            "with fedhaw.data.from_arrays."
        )
    if data_dir is not None and not isinstance(data_dir, (str, os.PathLike)):
        raise InvalidSimulation(f"data_dir is {data_dir!r}; it must be the path of a folder.")
    return load(os.fspath(data), data_dir)


def _parts(
    dataset: Dataset,
    split: SplitSource,
    clients: int | None,
    alpha: float,
    split_seed: int | None,
) -> list[NDArray[np.int64]]:
    if isinstance(split, str):
        return split_by_name(dataset, split, clients, alpha=alpha, seed=split_seed)
    if not isinstance(split, Sequence) or not len(split):
        raise InvalidSimulation(
            f"split is {split!r}; give a split's name, or a list of index arrays, one a client."
        )
    if clients not in (None, len(split)):
        raise InvalidSimulation(
            f"clients is {clients}, but split holds {len(split)} arrays; leave clients out."
        )
    return [_indices(part, client, len(dataset.y_train)) for client, part in enumerate(split)]


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


def _module(model: ModelSource, dataset: Dataset, seed: int) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(model, str):
            return build(model, dataset.input_shape, dataset.classes)
        module = _made(model) if callable(model) else None
    if not isinstance(module, nn.Module):
        raise InvalidSimulation(
            f"model is {model!r}; give a model's name, a torch module, or a function without "
            "arguments that returns one."
        )
    return module


def _made(function: Callable[[], nn.Module]) -> nn.Module:
    try:
        return function()
    except FedhawError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InvalidSimulation(
            f"model is {function!r}, which failed ({type(error).__name__}: {reason}); give a "
            "function without arguments that returns a torch module, or the module itself."
        ) from error


def _update(update: str | ClientUpdate, eta: float, epochs: int, batch: int) -> ClientUpdate:
    if isinstance(update, str):
        return by_name(update, eta=eta, epochs=epochs, batch=batch)
    if isinstance(update, LocalUpdate):
        default = LocalUpdate()
        for name, value in (("eta", eta), ("epochs", epochs), ("batch", batch)):
            if value not in (getattr(default, name), getattr(update, name)):
                raise InvalidSimulation(
                    f"{name} is {value}, but the update says {getattr(update, name)}; say it once, "
                    "in the update."
                )
        return update
    if not callable(update):
        raise InvalidSimulation(
            f"update is {update!r}; give its name, a LocalUpdate, or a function "
            "(module, x, y, generator) -> loss."
        )
    return cast(ClientUpdate, update)


def _try_to_evaluate(federation: Federation) -> None:
    """Let a module that does not fit the data fail here, not in every client and every round."""
    evaluator = Evaluator(federation.module, federation.layout, federation.loss, federation.device)
    x = next(iter(federation.x_test.values()))
    y = federation.y_test
    # A batch with the largest label in it, which a module with too few outputs cannot handle,
    # and the last batch, which may be too small for a module.
    rows = torch.argsort(y, descending=True, stable=True)[:EVALUATION_BATCH]
    last = min(evaluator.batches(len(y))[-1], EVALUATION_BATCH)
    try:
        evaluator(federation.initial_model, x[rows], y[rows])
        evaluator(federation.initial_model, x[-last:], y[-last:])
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidSimulation(
            f"{type(federation.module).__name__} cannot be evaluated on samples of shape "
            f"{tuple(x.shape[1:])} with {federation.labels.shape[1]} classes ({reason}); choose a "
            "model that fits the data."
        ) from error

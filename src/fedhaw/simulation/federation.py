"""What is simulated: a data set shared out over clients, and a model that they train.

The initial model depends on the seed alone, the split on its own seed. The test set is divided
once and for all into a proxy part, which only rules with proxy data (FedLAW) may see, and an
evaluation part, on which everybody's accuracy is measured; they never overlap, and the proxy part
counts in nobody's accuracy, whichever rule is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedhaw.clients import ClientUpdate, steps_of
from fedhaw.data import Dataset, label_counts, proxy_split, scaled_part
from fedhaw.description import describe, digest
from fedhaw.models import EvaluationMetric, Layout, Loss, proxy_loss
from fedhaw.rules import ProxyLoss
from fedhaw.settings import SETTINGS, FederationSettings, described
from fedhaw.simulation.errors import InvalidSimulation
from fedhaw.simulation.holdings import Holdings
from fedhaw.simulation.preparation import (
    check_evaluation,
    dataset_of,
    device_of,
    initial_module,
    metrics_of,
    shared_out,
    update_of,
)
from fedhaw.uplink import RecordedUplink, Uplink, uplink_of


@dataclass(frozen=True, eq=False)
class Federation:
    """A federation, ready to run; what a rule may be made from.

    Attributes:
        settings: all of its settings.
        dataset: the data as the clients hold them.
        holdings: who holds which of its training samples.
        module: the model's template.
        layout: how it lies in the flat vector.
        initial_model: (P,) the first global model.
        client_update: what a client does with the global model.
        uplink: loses uploads; None never does.
        metrics: the user's own evaluation metrics, by name.
        x_test: by scale, (M, ...) the evaluation part of the test set; the run's own scale first.
        y_test: (M,) its labels.
        x_proxy: (R, ...) the proxy part, on the run's own scale.
        y_proxy: (R,) its labels.
        device: where to compute.
        digests: of the data and of the split.
        samples: what `training_samples` gives, where it is kept; None makes it for whoever asks.
    """

    settings: FederationSettings
    dataset: Dataset
    holdings: Holdings
    module: nn.Module
    layout: Layout
    initial_model: Tensor
    client_update: ClientUpdate
    uplink: Uplink | None
    metrics: Mapping[str, EvaluationMetric]
    x_test: Mapping[str, Tensor]
    y_test: Tensor
    x_proxy: Tensor
    y_proxy: Tensor
    device: torch.device
    digests: Mapping[str, str]
    samples: tuple[Tensor, Tensor] | None = None

    @classmethod
    def prepare(cls, settings: FederationSettings, dataset: Dataset | None = None) -> Self:
        """Everything loaded, shared out and tried.

        Args:
            settings: as `fedhaw.settings.fill` gives them.
            dataset: the data set that the settings name, if it has been loaded before.

        Raises:
            FedhawError: something cannot be had or does not fit.
        """
        device = device_of(settings["device"])
        dataset, parts = shared_out(settings, dataset or dataset_of(settings))
        uplink = uplink_of(
            settings["uplink"],
            settings["loss_rate"],
            settings["burst"],
            settings["hours"],
            partial(label_counts, dataset.y_train, parts, dataset.classes),
        )
        module = initial_module(settings, dataset)
        layout = Layout.of(module, settings["buffers"])
        scale = settings["input_scale"]
        proxy, evaluation = proxy_split(len(dataset.y_test), dataset.classes)
        x_test = {
            name: torch.from_numpy(scaled_part(dataset, "test", name))
            for name in (scale, *settings["also_scales"])
        }
        y_test = torch.from_numpy(dataset.y_test)
        arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
        federation = cls(
            settings=settings,
            dataset=dataset,
            holdings=Holdings.of(parts, device),
            module=module,
            layout=layout,
            initial_model=layout.flatten(module).to(device),
            client_update=update_of(settings),
            uplink=uplink,
            metrics=metrics_of(settings),
            x_test={name: x[evaluation] for name, x in x_test.items()},
            y_test=y_test[evaluation],
            x_proxy=x_test[scale][proxy],
            y_proxy=y_test[proxy],
            device=device,
            digests={"data": digest(*arrays), "parts": digest(*parts)},
        )
        federation._check()
        return federation

    def with_seed(self, seed: int) -> Self:
        """The same federation under another seed: data and split are shared, the model is not."""
        if seed == self.settings["seed"]:
            return self
        settings: FederationSettings = {**self.settings, "seed": seed}
        module = initial_module(settings, self.dataset)
        initial_model = self.layout.flatten(module).to(self.device)
        return replace(self, settings=settings, module=module, initial_model=initial_model)

    def on(self, device: torch.device) -> Self:
        """The same federation on another device."""
        if device == self.device:
            return self
        holdings = Holdings(self.holdings.rows.to(device), self.holdings.offsets)
        initial_model = self.initial_model.to(device)
        return replace(self, device=device, holdings=holdings, initial_model=initial_model)

    @property
    def clients(self) -> int:
        """K."""
        return len(self.holdings)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(K,) how many samples each client holds."""
        return self.holdings.sizes

    @property
    def labels(self) -> NDArray[np.int64]:
        """(K, classes) how many samples of each class each client holds."""
        rows = self.holdings.rows.cpu().numpy()
        parts = np.split(rows, self.holdings.offsets[1:-1])
        return label_counts(self.dataset.y_train, parts, self.dataset.classes)

    @property
    def eta(self) -> float | None:
        """The clients' learning rate; None for a client update of the user's own."""
        steps = steps_of(self.client_update)
        return None if steps is None else steps.eta

    @property
    def loss(self) -> Loss:
        """(outputs, labels) -> mean loss, in evaluation and on the proxy part."""
        steps = steps_of(self.client_update)
        return cross_entropy if steps is None else steps.loss

    def training_samples(self) -> tuple[Tensor, Tensor]:
        """All clients' (N, ...) samples on the run's own scale, and their (N,) labels."""
        if self.samples is not None:
            x, y = self.samples
            return x.to(self.device), y.to(self.device)
        # Made for whoever asks: pixels take four times as much room as inputs than as they came.
        x = torch.from_numpy(scaled_part(self.dataset, "train", self.settings["input_scale"]))
        return x.to(self.device), torch.from_numpy(self.dataset.y_train).to(self.device)

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

    def config(self) -> dict[str, Any]:
        """Everything the result depends on, in JSON; large things as digests."""
        settings, split, model = self.settings, self.settings["split"], self.settings["model"]
        stated = {
            name: describe(value)
            for name, value in described(settings).items()
            if SETTINGS[name].told_by is None
        }
        stated.pop("metrics", None)  # whoever has none does not speak of them
        return stated | {
            "data": {"name": self.dataset.name, "digest": self.digests["data"]},
            "clients": self.clients,
            "split": split if isinstance(split, str) else "given",
            "alpha": settings["alpha"] if split in ("letter", "dirichlet") else None,
            "split_seed": settings["split_seed"] if isinstance(split, str) else None,
            "parts": self.digests["parts"],
            "model": model if isinstance(model, str) else type(self.module).__name__,
            "initial_model": digest(self.initial_model),
            "client_update": describe(self.client_update),
            "uplink": describe(self.uplink),
            "device": self.device.type,  # which one of several alike makes no difference
            **({"metrics": sorted(self.metrics)} if self.metrics else {}),
        }

    def _check(self) -> None:
        """A check: what does not fit fails here, not in every client and every round."""
        if not bool(self.initial_model.isfinite().all()):
            raise InvalidSimulation("The initial model is not finite; check the module's values.")
        cohort = self.settings["cohort"]
        if cohort is not None and cohort > self.clients:
            raise InvalidSimulation(
                f"cohort is {cohort}, but there are {self.clients} clients; ask for at most "
                f"{self.clients}."
            )
        if isinstance(self.uplink, RecordedUplink):
            self.uplink.check(self.clients)
        x = next(iter(self.x_test.values()))
        check_evaluation(self.module, self.layout, self.loss, self.initial_model, x, self.y_test)

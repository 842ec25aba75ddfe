"""Every setting of a federation, declared once: its type, default and limits, and a sentence on it.

The keywords of `fedhaw.simulate`, the keys of a recipe, the flags of the commands with their help
and completion, the table in docs/settings.md and the config in a history are made from what stands
here. To add a setting: declare it below, use it, and write the table anew with
`python -m fedhaw.settings > docs/settings.md`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, TypedDict

from fedhaw.data import SPLITS
from fedhaw.data.scales import InputScale
from fedhaw.listing import Listing
from fedhaw.rules.lengths import LIMIT
from fedhaw.settings.declared import declared
from fedhaw.settings.setting import Setting
from fedhaw.settings.sources import (
    DataSource,
    DeviceSource,
    Folder,
    MetricSource,
    ModelSource,
    SplitSource,
    UpdateSource,
    UplinkSource,
)
from fedhaw.uplink import UPLINKS, Hours

SEED = 2**32 - 1
"""The largest seed that every generator takes."""

_training = partial(Setting, panel="Training")
_steps = partial(_training, told_by="client_update")
_machine = partial(Setting, panel="Machine", place_only=True)
_sweep = partial(Setting, panel="Sweep", place_only=True)

# What these packages list is known without importing them, for that would take torch.
_DATA: Listing[object] = Listing("data")
_MODELS: Listing[object] = Listing("models")
_UPDATES: Listing[object] = Listing("clients")
_ENGINES: Listing[object] = Listing("simulation.engines")


class Settings(TypedDict, total=False):
    """Everything that can be set on a federation, besides its data and its rule."""

    data_dir: Annotated[Folder | None, Setting(default_text="none", place_only=True)]
    """Folder to look for data in first; then $FEDHAW_DATA and a cache folder."""
    train_samples: Annotated[int | None, Setting(default_text="all", at_least=1, told_by="data")]
    """Use only so many training samples, the first ones."""
    split: Annotated[
        SplitSource,
        Setting("letter", known=SPLITS, objects="an array of sample indices for each client"),
    ]
    """Who holds which samples: {known}, or FILE.npz."""
    split_seed: Annotated[
        int | None, Setting(default_text="1 for letter, as there, else 0", at_least=0, at_most=SEED)
    ]
    """The seed of the split."""
    alpha: Annotated[float, Setting(0.1, above=0)]
    """D_alpha of the splits letter and dirichlet: how unevenly classes are spread; smaller is more
    uneven."""
    clients: Annotated[
        int | None,
        Setting(
            10, default_text="10, or as many as the holders or the file of the split", at_least=1
        ),
    ]
    """K, how many clients there are."""
    min_size: Annotated[int, Setting(10, at_least=1, told_by="parts")]
    """Fewest samples of a client, in the split dirichlet."""
    shards_per_client: Annotated[int, Setting(2, at_least=1, told_by="parts")]
    """Shards of each client, in the split shards."""
    noisy_clients: Annotated[int, Setting(0, at_least=0, told_by="data", later=True)]
    """How many clients hold random labels."""
    cohort: Annotated[int | None, Setting(default_text="all", at_least=1)]
    """How many clients take part in a round, drawn anew each time."""
    uplink: Annotated[
        UplinkSource | None,
        Setting(
            "letter",
            known=UPLINKS,
            objects="a number, which is the loss_rate of letter, or an uplink of your own",
        ),
    ]
    """How uploads get lost: {known}; FILE.csv, a trace of lost uploads; or your own,
    file.py:Name."""
    loss_rate: Annotated[float, Setting(0.0, at_least=0, at_most=1, told_by="uplink")]
    """p_e of the uplinks letter and late, where each client's uploads are lost, or late, with a
    probability of its own, up to this; or the share of all uploads that bursty loses; or the
    largest loss probability of a client in by-label and, at the best hour, hourly."""
    burst: Annotated[float, Setting(3.0, at_least=1, told_by="uplink")]
    """Mean rounds of a burst of losses, in the uplink bursty; or of a delay, in late."""
    hours: Annotated[Hours, Setting("sine", told_by="uplink", later=True)]
    """How clients are available over every 20 rounds, in the uplink hourly: sine (70 % on average),
    steps (ten rounds all, ten rounds 40 %), or cut (as sine, but not at all below 25 %)."""
    stand_in: Annotated[Literal["global", "last", "none"], Setting("global")]
    """What takes the place of a lost upload: the global model, the client's last one that arrived,
    or none."""
    length_limit: Annotated[float, Setting(LIMIT, above=1, besides=0, later=True, before=0)]
    """How many times as long as usual an update may be before it is refused and counts as lost; 0
    refuses none."""
    model: Annotated[
        ModelSource,
        _training(
            "mlp",
            by_data={"cifar10": "resnet18", "stanford-dogs": "head"},
            same_values={"mlp-128-128": "mlp"},
            known=_MODELS,
            objects="a torch module, whose values are the initial model, or a function that makes "
            "one, called with torch seeded by seed",
        ),
    ]
    """The model: {known}, numbers being widths; or your own, file.py:Name."""
    buffers: Annotated[Literal["batch", "average"], _training("batch")]
    """Batch norm's statistics: of the batch, or averaged over clients."""
    precision: Annotated[Literal["float32", "bfloat16"], _training("float32", later=True)]
    """In which precision the model's products are formed; its parameters and the server's sums are
    float32 in any case."""
    input_scale: Annotated[InputScale, _training("matched")]
    """How pixels become inputs: alike in training and test (matched), or as the letter's authors
    did it."""
    also_scales: Annotated[Sequence[InputScale] | InputScale, _training((), default_text="none")]
    """Further input scales on which the model is evaluated."""
    rounds: Annotated[
        int,
        _training(200, by_data={"mnist-5k": 40, "cifar10": 50, "stanford-dogs": 100}, at_least=1),
    ]
    """T, how many rounds; a finished run may be called again with more."""
    epochs: Annotated[int, _steps(1, by_data={"cifar10": 10, "stanford-dogs": 10}, at_least=1)]
    """Passes over its own samples that a client makes in a round."""
    batch: Annotated[int, _steps(64, by_data={"mnist-5k": 32}, at_least=1)]
    """Samples in a training step."""
    eta: Annotated[
        float,
        _steps(1e-3, by_data={"mnist-5k": 1e-2, "cifar10": 1e-1, "stanford-dogs": 5e-5}, above=0),
    ]
    """The clients' learning rate."""
    client_update: Annotated[
        UpdateSource,
        _training(
            "sgd",
            by_data={"cifar10": "sgd-wd", "stanford-dogs": "adam"},
            known=_UPDATES,
            objects="a LocalUpdate, or an algorithm or a function of your own",
        ),
    ]
    """What a client does: {known}, or several of these over each other, such as fedprox+adam; or
    your own, file.py:Name."""
    optimizer: Annotated[UpdateSource, Setting(same_as="client_update")]
    mu: Annotated[float, _steps(1e-3, at_least=0)]
    """FedProx's coefficient, where client_update has fedprox."""
    feddyn_alpha: Annotated[float, _steps(0.01, at_least=0, later=True)]
    """FedDyn's alpha, where client_update has feddyn: how strongly clients are held to the global
    model."""
    weight_decay: Annotated[
        float | None, _steps(default_text="the client update's own", at_least=0)
    ]
    """Weight decay in place of the client update's own."""
    momentum: Annotated[float, _steps(0.0, at_least=0, at_most=0.9999, later=True)]
    """The momentum of the clients' SGD."""
    clip: Annotated[float, _steps(0.0, at_least=0, later=True)]
    """The longest gradient of a client's step, longer ones being shortened to it; 0 leaves all as
    they are."""
    eta_decay: Annotated[float, _steps(1.0, at_least=0, at_most=1, later=True)]
    """By which the clients' learning rate is multiplied after every round."""
    evaluate_every: Annotated[int, _training(1, at_least=1)]
    """Rounds between two evaluations; the last round is always evaluated."""
    metrics: Annotated[
        MetricSource,
        _training((), default_text="none", objects="such functions by name", later=True),
    ]
    """Further evaluation metrics of your own, file.py:Name: functions of all outputs and all labels
    of the test set that return a number."""
    per_client_accuracy: Annotated[bool, _training(False, later=True)]
    """Also evaluate the global model on each client's own samples: mean, worst and spread."""
    seed: Annotated[int, _training(0, at_least=0, at_most=SEED)]
    """The seed of everything random but the split."""
    engine: Annotated[str, _machine("auto", known=_ENGINES, choices=("auto", *_ENGINES))]
    """How the clients are trained: {known}; auto picks what is probably fastest."""
    workers: Annotated[int | None, _machine(default_text="one a core", at_least=1)]
    """Worker processes of the engine processes."""
    device: Annotated[DeviceSource, _machine("cpu", objects="a torch.device")]
    """Where to compute: cpu, cuda, ..."""
    deadline: Annotated[float | None, Setting(default_text="none", above=0, panel="Machine")]
    """Seconds after which a client's model is too late; such a run is not repeatable."""
    checkpoint_every: Annotated[int, _machine(10, at_least=1)]
    """Rounds between two checkpoints; there is always one at the end, and one a minute where rounds
    are slow."""


class FederationSettings(Settings, total=False):
    """The settings of a federation with its data: the keys of a recipe, the rule apart."""

    data: Annotated[DataSource, Setting("mnist-5k", known=_DATA, objects="a fedhaw.data.Dataset")]
    """The data set: {known}, FILE.npz, or a function of your own, file.py:Name."""


class SweepSettings(TypedDict, total=False):
    """How the runs of a sweep share the machine: flags of `compare` and `reproduce`, no more."""

    jobs: Annotated[
        int | None,
        _sweep(default_text="whatever is fastest for the sweep", at_least=1, at_most=1024),
    ]
    """How many runs at a time, a core each; the results are the same, bit for bit."""
    devices: Annotated[str | None, _sweep(default_text="the device of the federation")]
    """Devices that runs are handed in turn, such as cuda:0,cuda:1; a run at a time on each, where
    jobs does not say otherwise."""
    cluster: Annotated[str | None, _sweep(default_text="this machine")]
    """A cluster that computes the runs: dask://HOST:PORT, ray://HOST:PORT, or ray."""


_EVERYTHING = declared(FederationSettings)
_EVERYTHING = {"data": _EVERYTHING.pop("data"), **_EVERYTHING}

SETTINGS: dict[str, Setting] = {
    name: setting for name, setting in _EVERYTHING.items() if setting.same_as is None
}
"""Every setting by name."""

SWEEP_SETTINGS: dict[str, Setting] = declared(SweepSettings)
"""Every setting of a sweep by name; none of them is a key of a recipe."""

SPELLINGS: dict[str, str] = {
    name: setting.same_as for name, setting in _EVERYTHING.items() if setting.same_as is not None
}
"""Other names that are accepted, and whose they are."""

FORMER_NAMES: dict[str, str] = {"update": "client_update", "scale": "input_scale"}
"""What settings were called in `simulate` and in histories of the first release."""

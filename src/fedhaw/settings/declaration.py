"""Every setting of a federation, declared once.

The keywords of `fedhaw.simulate`, the keys of a recipe, the flags of the commands with their help
and completion, the table in docs/settings.md and the config in a history are made from what stands
here. To add a setting: declare it below, use it, and write the table anew with
`python -m fedhaw.settings > docs/settings.md`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypedDict, get_args, get_type_hints

from fedhaw.data import SPLITS
from fedhaw.data.scales import InputScale
from fedhaw.listing import Listing
from fedhaw.rules.lengths import LIMIT
from fedhaw.settings.setting import Setting
from fedhaw.uplink import UPLINKS, Hours

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from torch import nn

    from fedhaw.clients import ClientUpdate
    from fedhaw.data import Dataset
    from fedhaw.models import EvaluationMetric
    from fedhaw.uplink import Uplink

    DataSource: TypeAlias = str | os.PathLike[str] | Dataset
    """A data set: by name, by path, or itself."""
    SplitSource: TypeAlias = str | os.PathLike[str] | Sequence[ArrayLike]
    """Who holds which samples: by name, by file, or the samples' numbers client by client."""
    ModelSource: TypeAlias = str | nn.Module | Callable[[], nn.Module]
    """What is trained: by name, a module, or a function that makes one."""
    UpdateSource: TypeAlias = str | ClientUpdate
    UplinkSource: TypeAlias = Uplink | float | str | os.PathLike[str]
    DeviceSource: TypeAlias = str | torch.device
    Folder: TypeAlias = str | os.PathLike[str]
    MetricSource: TypeAlias = Sequence[str] | Mapping[str, EvaluationMetric]
else:  # what a file or a flag can say; torch is not needed for that
    DataSource = SplitSource = ModelSource = UpdateSource = UplinkSource = DeviceSource = str
    Folder, MetricSource = str, Sequence[str]

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

    data_dir: Annotated[
        Folder | None,
        Setting(
            "Folder to look for data in first; then $FEDHAW_DATA and a cache folder.",
            default_text="none",
            place_only=True,
        ),
    ]
    train_samples: Annotated[
        int | None,
        Setting(
            "Use only so many training samples, the first ones.",
            default_text="all",
            at_least=1,
            told_by="data",
        ),
    ]
    split: Annotated[
        SplitSource,
        Setting(
            f"Who holds which samples: {', '.join(SPLITS)}, or FILE.npz.",
            "letter",
            known=SPLITS,
            objects="an array of sample indices for each client",
        ),
    ]
    split_seed: Annotated[
        int | None,
        Setting(
            "The seed of the split.",
            default_text="1 for letter, as there, else 0",
            at_least=0,
            at_most=SEED,
        ),
    ]
    alpha: Annotated[
        float,
        Setting(
            "D_alpha of the splits letter and dirichlet: how unevenly classes are spread; "
            "smaller is more uneven.",
            0.1,
            above=0,
        ),
    ]
    clients: Annotated[
        int | None,
        Setting(
            "K, how many clients there are.",
            10,
            default_text="10, or as many as the holders or the file of the split",
            at_least=1,
        ),
    ]
    min_size: Annotated[
        int,
        Setting(
            "Fewest samples of a client, in the split dirichlet.", 10, at_least=1, told_by="parts"
        ),
    ]
    shards_per_client: Annotated[
        int, Setting("Shards of each client, in the split shards.", 2, at_least=1, told_by="parts")
    ]
    noisy_clients: Annotated[
        int,
        Setting("How many clients hold random labels.", 0, at_least=0, told_by="data", later=True),
    ]
    cohort: Annotated[
        int | None,
        Setting(
            "How many clients take part in a round, drawn anew each time.",
            default_text="all",
            at_least=1,
        ),
    ]
    uplink: Annotated[
        UplinkSource | None,
        Setting(
            f"How uploads get lost: {UPLINKS.in_words()}; FILE.csv, a trace of lost uploads; or "
            "your own, file.py:Name.",
            "letter",
            known=tuple(UPLINKS),
            objects="a number, which is the loss_rate of letter, or an uplink of your own",
        ),
    ]
    loss_rate: Annotated[
        float,
        Setting(
            "p_e of the uplinks letter and late, where each client's uploads are lost, or "
            "late, with a probability of its own, up to this; or the share of all uploads that "
            "bursty loses; or the largest loss probability of a client in by-label and, at the "
            "best hour, hourly.",
            0.0,
            at_least=0,
            at_most=1,
            told_by="uplink",
        ),
    ]
    burst: Annotated[
        float,
        Setting(
            "Mean rounds of a burst of losses, in the uplink bursty; or of a delay, in late.",
            3.0,
            at_least=1,
            told_by="uplink",
        ),
    ]
    hours: Annotated[
        Hours,
        Setting(
            "How clients are available over every 20 rounds, in the uplink hourly: sine (70 % "
            "on average), steps (ten rounds all, ten rounds 40 %), or cut (as sine, but not at "
            "all below 25 %).",
            "sine",
            told_by="uplink",
            later=True,
        ),
    ]
    stand_in: Annotated[
        Literal["global", "last", "none"],
        Setting(
            "What takes the place of a lost upload: the global model, the client's last one "
            "that arrived, or none.",
            "global",
        ),
    ]
    length_limit: Annotated[
        float,
        Setting(
            "How many times as long as usual an update may be before it is refused and counts "
            "as lost; 0 refuses none.",
            LIMIT,
            above=1,
            besides=0,
            later=True,
            before=0,
        ),
    ]
    model: Annotated[
        ModelSource,
        _training(
            f"The model: {_MODELS.in_words()}, numbers being widths; or your own, file.py:Name.",
            "mlp",
            by_data={"cifar10": "resnet18", "stanford-dogs": "head"},
            same_values={"mlp-128-128": "mlp"},
            known=tuple(_MODELS),
            objects="a torch module, whose values are the initial model, or a function that makes "
            "one, called with torch seeded by seed",
        ),
    ]
    buffers: Annotated[
        Literal["batch", "average"],
        _training("Batch norm's statistics: of the batch, or averaged over clients.", "batch"),
    ]
    precision: Annotated[
        Literal["float32", "bfloat16"],
        _training(
            "In which precision the model's products are formed; its parameters and the "
            "server's sums are float32 in any case.",
            "float32",
            later=True,
        ),
    ]
    input_scale: Annotated[
        InputScale,
        _training(
            "How pixels become inputs: alike in training and test (matched), or as the "
            "letter's authors did it.",
            "matched",
        ),
    ]
    also_scales: Annotated[
        Sequence[InputScale] | InputScale,
        _training("Further input scales on which the model is evaluated.", (), default_text="none"),
    ]
    rounds: Annotated[
        int,
        _training(
            "T, how many rounds; a finished run may be called again with more.",
            200,
            by_data={"mnist-5k": 40, "cifar10": 50, "stanford-dogs": 100},
            at_least=1,
        ),
    ]
    epochs: Annotated[
        int,
        _steps(
            "Passes over its own samples that a client makes in a round.",
            1,
            by_data={"cifar10": 10, "stanford-dogs": 10},
            at_least=1,
        ),
    ]
    batch: Annotated[
        int, _steps("Samples in a training step.", 64, by_data={"mnist-5k": 32}, at_least=1)
    ]
    eta: Annotated[
        float,
        _steps(
            "The clients' learning rate.",
            1e-3,
            by_data={"mnist-5k": 1e-2, "cifar10": 1e-1, "stanford-dogs": 5e-5},
            above=0,
        ),
    ]
    client_update: Annotated[
        UpdateSource,
        _training(
            f"What a client does: {_UPDATES.in_words()}, or several of these over each other, such "
            "as fedprox+adam; or your own, file.py:Name.",
            "sgd",
            by_data={"cifar10": "sgd-wd", "stanford-dogs": "adam"},
            known=tuple(_UPDATES),
            objects="a LocalUpdate, or an algorithm or a function of your own",
        ),
    ]
    optimizer: Annotated[UpdateSource, Setting(same_as="client_update")]
    mu: Annotated[
        float, _steps("FedProx's coefficient, where client_update has fedprox.", 1e-3, at_least=0)
    ]
    feddyn_alpha: Annotated[
        float,
        _steps(
            "FedDyn's alpha, where client_update has feddyn: how strongly clients are held to "
            "the global model.",
            0.01,
            at_least=0,
            later=True,
        ),
    ]
    weight_decay: Annotated[
        float | None,
        _steps(
            "Weight decay in place of the client update's own.",
            default_text="the client update's own",
            at_least=0,
        ),
    ]
    momentum: Annotated[
        float,
        _steps("The momentum of the clients' SGD.", 0.0, at_least=0, at_most=0.9999, later=True),
    ]
    clip: Annotated[
        float,
        _steps(
            "The longest gradient of a client's step, longer ones being shortened to it; 0 "
            "leaves all as they are.",
            0.0,
            at_least=0,
            later=True,
        ),
    ]
    eta_decay: Annotated[
        float,
        _steps(
            "By which the clients' learning rate is multiplied after every round.",
            1.0,
            at_least=0,
            at_most=1,
            later=True,
        ),
    ]
    evaluate_every: Annotated[
        int,
        _training(
            "Rounds between two evaluations; the last round is always evaluated.", 1, at_least=1
        ),
    ]
    metrics: Annotated[
        MetricSource,
        _training(
            "Further evaluation metrics of your own, file.py:Name: functions of all outputs "
            "and all labels of the test set that return a number.",
            (),
            default_text="none",
            objects="such functions by name",
            later=True,
        ),
    ]
    per_client_accuracy: Annotated[
        bool,
        _training(
            "Also evaluate the global model on each client's own samples: mean, worst and spread.",
            False,
            later=True,
        ),
    ]
    seed: Annotated[
        int, _training("The seed of everything random but the split.", 0, at_least=0, at_most=SEED)
    ]
    engine: Annotated[
        str,
        _machine(
            f"How the clients are trained: {_ENGINES.in_words()}; auto picks what is probably "
            "fastest.",
            "auto",
            choices=("auto", *_ENGINES),
        ),
    ]
    workers: Annotated[
        int | None,
        _machine(
            "Worker processes of the engine processes.", default_text="one a core", at_least=1
        ),
    ]
    device: Annotated[
        DeviceSource, _machine("Where to compute: cpu, cuda, ...", "cpu", objects="a torch.device")
    ]
    deadline: Annotated[
        float | None,
        Setting(
            "Seconds after which a client's model is too late; such a run is not repeatable.",
            default_text="none",
            above=0,
            panel="Machine",
        ),
    ]
    checkpoint_every: Annotated[
        int,
        _machine(
            "Rounds between two checkpoints; there is always one at the end, and one a minute "
            "where rounds are slow.",
            10,
            at_least=1,
        ),
    ]


class FederationSettings(Settings, total=False):
    """The settings of a federation with its data: the keys of a recipe, the rule apart."""

    data: Annotated[
        DataSource,
        Setting(
            f"The data set: {_DATA.in_words()}, FILE.npz, or a function of your own, file.py:Name.",
            "mnist-5k",
            known=tuple(_DATA),
            objects="a fedhaw.data.Dataset",
        ),
    ]


class SweepSettings(TypedDict, total=False):
    """How the runs of a sweep share the machine: flags of `compare` and `reproduce`, no more."""

    jobs: Annotated[
        int | None,
        _sweep(
            "How many runs at a time, a core each; the results are the same, bit for bit.",
            default_text="whatever is fastest for the sweep",
            at_least=1,
            at_most=1024,
        ),
    ]
    devices: Annotated[
        str | None,
        _sweep(
            "Devices that runs are handed in turn, such as cuda:0,cuda:1; a run at a time on "
            "each, where jobs does not say otherwise.",
            default_text="the device of the federation",
        ),
    ]
    cluster: Annotated[
        str | None,
        _sweep(
            "A cluster that computes the runs: dask://HOST:PORT, ray://HOST:PORT, or ray.",
            default_text="this machine",
        ),
    ]


def _declared(of: type) -> dict[str, Setting]:
    found = {}
    for name, hint in get_type_hints(of, include_extras=True).items():
        of_type, declaration = get_args(hint)
        found[name] = declaration.of_type(name, of_type)
    return found


_EVERYTHING = _declared(FederationSettings)
_EVERYTHING = {"data": _EVERYTHING.pop("data"), **_EVERYTHING}

SETTINGS: dict[str, Setting] = {
    name: setting for name, setting in _EVERYTHING.items() if setting.same_as is None
}
"""Every setting by name."""

SWEEP_SETTINGS: dict[str, Setting] = _declared(SweepSettings)
"""Every setting of a sweep by name; none of them is a key of a recipe."""

SPELLINGS: dict[str, str] = {
    name: setting.same_as for name, setting in _EVERYTHING.items() if setting.same_as is not None
}
"""Other names that are accepted, and whose they are."""

FORMER_NAMES: dict[str, str] = {"update": "client_update", "scale": "input_scale"}
"""What settings were called in `simulate` and in histories of the first release."""

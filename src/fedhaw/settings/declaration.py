"""Every setting of a federation, declared once.

The keywords of `fedhaw.simulate`, the keys of a recipe, the flags of the commands with their help
and completion, the table in docs/settings.md and the config in a history are made from what stands
here. To add a setting: declare it below, use it, and write the table anew with
`python -m fedhaw.settings > docs/settings.md`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypedDict, get_args, get_type_hints

from fedhaw.data import SPLITS
from fedhaw.data import names as data_names
from fedhaw.data.scales import InputScale
from fedhaw.rules.lengths import LIMIT
from fedhaw.settings.setting import Setting
from fedhaw.uplink import Hours

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


EngineName: TypeAlias = Literal["auto", "sequential", "processes", "stacked"]
"""Who trains the clients; `fedhaw.simulation.engines` has the class of each."""


class Settings(TypedDict, total=False):
    """Everything that can be set on a federation, besides its data and its rule."""

    data_dir: Annotated[
        Folder | None,
        Setting(
            help="Folder to look for data in first; then $FEDHAW_DATA and a cache folder.",
            default_text="none",
            place_only=True,
        ),
    ]
    train_samples: Annotated[
        int | None,
        Setting(
            help="Use only so many training samples, the first ones.",
            default_text="all",
            at_least=1,
            told_by="data",
        ),
    ]
    split: Annotated[
        SplitSource,
        Setting(
            help=f"Who holds which samples: {', '.join(SPLITS)}, or FILE.npz.",
            default="letter",
            known="fedhaw.data:SPLITS",
            objects="an array of sample indices for each client",
        ),
    ]
    split_seed: Annotated[
        int | None,
        Setting(
            help="The seed of the split.",
            default_text="1 for letter, as there, else 0",
            at_least=0,
            at_most=SEED,
        ),
    ]
    alpha: Annotated[
        float,
        Setting(
            help="D_alpha of the splits letter and dirichlet: how unevenly classes are spread; "
            "smaller is more uneven.",
            default=0.1,
            above=0,
        ),
    ]
    clients: Annotated[
        int | None,
        Setting(
            help="K, how many clients there are.",
            default=10,
            default_text="10, or as many as the holders or the file of the split",
            at_least=1,
        ),
    ]
    min_size: Annotated[
        int,
        Setting(
            help="Fewest samples of a client, in the split dirichlet.",
            default=10,
            at_least=1,
            told_by="parts",
        ),
    ]
    shards_per_client: Annotated[
        int,
        Setting(
            help="Shards of each client, in the split shards.",
            default=2,
            at_least=1,
            told_by="parts",
        ),
    ]
    noisy_clients: Annotated[
        int,
        Setting(
            help="How many clients hold random labels.",
            default=0,
            at_least=0,
            told_by="data",
            later=True,
        ),
    ]
    cohort: Annotated[
        int | None,
        Setting(
            help="How many clients take part in a round, drawn anew each time.",
            default_text="all",
            at_least=1,
        ),
    ]
    uplink: Annotated[
        UplinkSource | None,
        Setting(
            help="How uploads get lost: letter (independently), bursty (Gilbert-Elliott), by-label "
            "(most where a client holds the first class), hourly (all clients at once), or "
            "FILE.csv, a trace of lost uploads.",
            default="letter",
            known="fedhaw.uplink:KINDS",
            objects="a number, which is the loss_rate of letter, or an uplink of your own",
        ),
    ]
    loss_rate: Annotated[
        float,
        Setting(
            help="p_e of the uplink letter, where each client's uploads are lost with a "
            "probability of its own, up to this; or the share of all uploads that bursty loses; or "
            "the largest loss probability of a client in by-label and, at the best hour, hourly.",
            default=0.0,
            at_least=0,
            at_most=1,
            told_by="uplink",
        ),
    ]
    burst: Annotated[
        float,
        Setting(
            help="Mean rounds of a burst of losses, in the uplink bursty.",
            default=3.0,
            at_least=1,
            told_by="uplink",
        ),
    ]
    hours: Annotated[
        Hours,
        Setting(
            help="How clients are available over every 20 rounds, in the uplink hourly: sine (70 % "
            "on average), steps (ten rounds all, ten rounds 40 %), or cut (as sine, but not at "
            "all below 25 %).",
            default="sine",
            told_by="uplink",
            later=True,
        ),
    ]
    stand_in: Annotated[
        Literal["global", "last", "none"],
        Setting(
            help="What takes the place of a lost upload: the global model, the client's last one "
            "that arrived, or none.",
            default="global",
        ),
    ]
    length_limit: Annotated[
        float,
        Setting(
            help="How many times as long as usual an update may be before it is refused and counts "
            "as lost; 0 refuses none.",
            default=LIMIT,
            above=1,
            besides=0,
            later=True,
            before=0,
        ),
    ]
    model: Annotated[
        ModelSource,
        Setting(
            help="The model: mlp, mlp-W-W, logistic, cnn, resnet18, resnet18-W or head, where W is "
            "a width, or your own, file.py:Name.",
            default="mlp",
            by_data={"cifar10": "resnet18", "stanford-dogs": "head"},
            same_values={"mlp-128-128": "mlp"},
            known="fedhaw.models:MODELS",
            panel="Training",
            objects="a torch module, whose values are the initial model, or a function that makes "
            "one, called with torch seeded by seed",
        ),
    ]
    buffers: Annotated[
        Literal["batch", "average"],
        Setting(
            help="Batch norm's statistics: of the batch, or averaged over clients.",
            default="batch",
            panel="Training",
        ),
    ]
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Setting(
            help="In which precision the model's products are formed; its parameters and the "
            "server's sums are float32 in any case.",
            default="float32",
            panel="Training",
            later=True,
        ),
    ]
    input_scale: Annotated[
        InputScale,
        Setting(
            help="How pixels become inputs: alike in training and test (matched), or as the "
            "letter's authors did it.",
            default="matched",
            panel="Training",
        ),
    ]
    also_scales: Annotated[
        Sequence[InputScale] | InputScale,
        Setting(
            help="Further input scales on which the model is evaluated.",
            default=(),
            default_text="none",
            panel="Training",
        ),
    ]
    rounds: Annotated[
        int,
        Setting(
            help="T, how many rounds; a finished run may be called again with more.",
            default=200,
            by_data={"mnist-5k": 40, "cifar10": 50, "stanford-dogs": 100},
            at_least=1,
            panel="Training",
        ),
    ]
    epochs: Annotated[
        int,
        Setting(
            help="Passes over its own samples that a client makes in a round.",
            default=1,
            by_data={"cifar10": 10, "stanford-dogs": 10},
            at_least=1,
            panel="Training",
            told_by="client_update",
        ),
    ]
    batch: Annotated[
        int,
        Setting(
            help="Samples in a training step.",
            default=64,
            by_data={"mnist-5k": 32},
            at_least=1,
            panel="Training",
            told_by="client_update",
        ),
    ]
    eta: Annotated[
        float,
        Setting(
            help="The clients' learning rate.",
            default=1e-3,
            by_data={"mnist-5k": 1e-2, "cifar10": 1e-1, "stanford-dogs": 5e-5},
            above=0,
            panel="Training",
            told_by="client_update",
        ),
    ]
    client_update: Annotated[
        UpdateSource,
        Setting(
            help="What a client does: sgd, sgd-wd, adam; fedprox, scaffold, feddyn, fednova, also "
            "over another one, such as fedprox+adam; or your own, file.py:Name.",
            default="sgd",
            by_data={"cifar10": "sgd-wd", "stanford-dogs": "adam"},
            known="fedhaw.clients:UPDATES",
            panel="Training",
            objects="a LocalUpdate, or an algorithm or a function of your own",
        ),
    ]
    optimizer: Annotated[UpdateSource, Setting(same_as="client_update")]
    mu: Annotated[
        float,
        Setting(
            help="FedProx's coefficient, where client_update has fedprox.",
            default=1e-3,
            at_least=0,
            panel="Training",
            told_by="client_update",
        ),
    ]
    feddyn_alpha: Annotated[
        float,
        Setting(
            help="FedDyn's alpha, where client_update has feddyn: how strongly clients are held to "
            "the global model.",
            default=0.01,
            at_least=0,
            panel="Training",
            told_by="client_update",
            later=True,
        ),
    ]
    weight_decay: Annotated[
        float | None,
        Setting(
            help="Weight decay in place of the client update's own.",
            default_text="the client update's own",
            at_least=0,
            panel="Training",
            told_by="client_update",
        ),
    ]
    momentum: Annotated[
        float,
        Setting(
            help="The momentum of the clients' SGD.",
            default=0.0,
            at_least=0,
            at_most=0.9999,
            panel="Training",
            told_by="client_update",
            later=True,
        ),
    ]
    clip: Annotated[
        float,
        Setting(
            help="The longest gradient of a client's step, longer ones being shortened to it; 0 "
            "leaves all as they are.",
            default=0.0,
            at_least=0,
            panel="Training",
            told_by="client_update",
            later=True,
        ),
    ]
    eta_decay: Annotated[
        float,
        Setting(
            help="By which the clients' learning rate is multiplied after every round.",
            default=1.0,
            at_least=0,
            at_most=1,
            panel="Training",
            told_by="client_update",
            later=True,
        ),
    ]
    evaluate_every: Annotated[
        int,
        Setting(
            help="Rounds between two evaluations; the last round is always evaluated.",
            default=1,
            at_least=1,
            panel="Training",
        ),
    ]
    metrics: Annotated[
        MetricSource,
        Setting(
            help="Further evaluation metrics of your own, file.py:Name: functions of all outputs "
            "and all labels of the test set that return a number.",
            default=(),
            default_text="none",
            panel="Training",
            objects="such functions by name",
            later=True,
        ),
    ]
    per_client_accuracy: Annotated[
        bool,
        Setting(
            help="Also evaluate the global model on each client's own samples: mean, worst and "
            "spread.",
            default=False,
            panel="Training",
            later=True,
        ),
    ]
    seed: Annotated[
        int,
        Setting(
            help="The seed of everything random but the split.",
            default=0,
            at_least=0,
            at_most=SEED,
            panel="Training",
        ),
    ]
    engine: Annotated[
        EngineName,
        Setting(
            help="Who trains the clients: sequential and processes give the same bits, stacked the "
            "same up to rounding; auto picks the one that is probably fastest.",
            default="auto",
            panel="Machine",
            place_only=True,
        ),
    ]
    workers: Annotated[
        int | None,
        Setting(
            help="Worker processes of the engine processes.",
            default_text="one a core",
            at_least=1,
            panel="Machine",
            place_only=True,
        ),
    ]
    device: Annotated[
        DeviceSource,
        Setting(
            help="Where to compute: cpu, cuda, ...",
            default="cpu",
            panel="Machine",
            objects="a torch.device",
            place_only=True,
        ),
    ]
    deadline: Annotated[
        float | None,
        Setting(
            help="Seconds after which a client's model is too late; such a run is not repeatable.",
            default_text="none",
            above=0,
            panel="Machine",
        ),
    ]
    checkpoint_every: Annotated[
        int,
        Setting(
            help="Rounds between two checkpoints; there is always one at the end.",
            default=10,
            at_least=1,
            panel="Machine",
            place_only=True,
        ),
    ]


class FederationSettings(Settings, total=False):
    """The settings of a federation with its data: the keys of a recipe, the rule apart."""

    data: Annotated[
        DataSource,
        Setting(
            help=f"The data set: {', '.join(data_names())} (mnist-5k needs no download), FILE.npz, "
            "or a function of your own, file.py:Name.",
            default="mnist-5k",
            known="fedhaw.data:names",
            objects="a fedhaw.data.Dataset",
        ),
    ]


class SweepSettings(TypedDict, total=False):
    """How the runs of a sweep share the machine: flags of `compare` and `reproduce`, no more."""

    jobs: Annotated[
        int | None,
        Setting(
            help="How many runs at a time, a core each; the results are the same, bit for bit.",
            default_text="whatever is fastest for the sweep",
            at_least=1,
            at_most=1024,
            panel="Sweep",
            place_only=True,
        ),
    ]
    devices: Annotated[
        str | None,
        Setting(
            help="Devices that runs are handed in turn, such as cuda:0,cuda:1; a run at a time on "
            "each, where jobs does not say otherwise.",
            default_text="the device of the federation",
            panel="Sweep",
            place_only=True,
        ),
    ]
    cluster: Annotated[
        str | None,
        Setting(
            help="A cluster that computes the runs: dask://HOST:PORT, ray://HOST:PORT, or ray.",
            default_text="this machine",
            panel="Sweep",
            place_only=True,
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

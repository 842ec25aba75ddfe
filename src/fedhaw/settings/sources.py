"""What Python may give for a setting besides text; a file or a flag can say the text alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

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
else:  # the text is enough at run time, and torch is not needed for it
    DataSource = SplitSource = ModelSource = UpdateSource = UplinkSource = DeviceSource = str
    Folder, MetricSource = str, Sequence[str]

"""The runs whose checkpoints lie in first_format/, as the first version of fedhaw wrote them.

Everything they depend on is exact in binary, so that they are the same runs on every machine.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import nn

import fedhaw
from fedhaw.data import from_arrays

FOLDER = Path(__file__).parent / "first_format"
RULE = fedhaw.FedHyperG()


def simulation() -> dict[str, Any]:
    """The arguments of a simulation of 6 rounds; the one in first_format/run stopped after 4."""
    points = ((np.arange(90 * 6) * 37 % 64).reshape(90, 6) / 64).astype(np.float32)
    labels = np.arange(90) % 3
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in module.parameters():
            numbers = np.arange(parameter.numel()) * 11 % 16 / 32 - 0.25
            parameter.copy_(torch.from_numpy(numbers).view(parameter.shape))
    return {
        "rule": RULE,
        "data": from_arrays(points[30:], labels[30:], points[:30], labels[:30], name="exact"),
        "model": module,
        "split": [np.arange(k, 60, 4) for k in range(4)],
        "eta": 0.125,
        "batch": 8,
        "uplink": 0.8,
        "stand_in": "last",
        "cohort": 3,
        "rounds": 6,
        "engine": "sequential",
        "checkpoint_every": 2,
    }


def initial_arrays() -> ArrayRecord:
    """The model of the deployment; the one in first_format/checkpoint.safetensors did 4 rounds."""
    record = ArrayRecord()
    for name, shape in (("a.weight", (3, 4)), ("a.bias", (3,)), ("a.running_mean", (3,))):
        numbers = np.arange(np.prod(shape)) * 5 % 8 / 8
        record[name] = Array(numbers.reshape(shape).astype(np.float32))
    record["a.count"] = Array(np.array(7, dtype=np.int64))
    return record

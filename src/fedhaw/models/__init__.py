"""Models, and how they lie in the flat vector that server and clients exchange."""

from fedhaw.models.evaluation import EvaluationMetric, Evaluator, InvalidMetric
from fedhaw.models.layout import Buffers, Entry, Layout, UnsupportedModule
from fedhaw.models.learner import Loss
from fedhaw.models.named import MODELS, build
from fedhaw.models.perceptron import head, mlp
from fedhaw.models.proxy import proxy_loss
from fedhaw.models.resnet import cnn, resnet18

__all__ = [
    "MODELS",
    "Buffers",
    "Entry",
    "EvaluationMetric",
    "Evaluator",
    "InvalidMetric",
    "Layout",
    "Loss",
    "UnsupportedModule",
    "build",
    "cnn",
    "head",
    "mlp",
    "proxy_loss",
    "resnet18",
]

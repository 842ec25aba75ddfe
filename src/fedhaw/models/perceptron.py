"""The multilayer perceptron: how to build one, and its gradient in closed form.

    h_0 = x,   h_i = relu(h_{i-1} W_i^T + b_i),   z = h_{L-1} W_L^T + b_L

With softmax cross-entropy, averaged over a batch of B samples, the gradient is

    D_L     = softmax(z) - onehot(y)
    D_{i-1} = (D_i W_i) * [h_{i-1} > 0]
    dW_i    = D_i^T h_{i-1} / B,    db_i = sum of the rows of D_i / B

Small networks spend most of their time between the matrix products, not in them. Written out like
this a training step is three products a layer and little else, and plain SGD needs no gradient at
all: the last product adds straight onto the weights.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from fedhaw.listing import listed
from fedhaw.models.layout import UnsupportedModule


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """A perceptron with ReLU between its layers; two sizes make logistic regression.

    Args:
        sizes: inputs, hidden widths, classes, such as ``(784, 128, 128, 10)``.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise UnsupportedModule(
            f"An MLP needs at least an input and an output size, all positive; got {list(sizes)}."
        )
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def head(features: int = 768, classes: int = 120) -> nn.Sequential:
    """The letter's classifier on frozen ViT features: 768-256-256-120."""
    return mlp((features, 256, 256, classes))


@listed(__name__, "mlp", "such as mlp-200-100")
def _mlp(input_shape: tuple[int, ...], classes: int, *widths: int) -> nn.Sequential:
    return mlp((prod(input_shape), *(widths or (128, 128)), classes))


@listed(__name__, "logistic")
def _logistic(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    return mlp((prod(input_shape), classes))


@listed(__name__, "head", "of the letter")
def _head(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    return head(prod(input_shape), classes)


def perceptron_sizes(module: nn.Module) -> tuple[int, ...] | None:
    """The sizes of a plain perceptron, or None for any other module.

    Plain means a `nn.Sequential` of, perhaps, a Flatten, and then Linear layers with bias, all
    trainable, with one ReLU between any two.
    """
    # Exact types: a subclass, such as one that parametrises its weight, may compute otherwise.
    if type(module) is not nn.Sequential:
        return None
    layers = list(module)
    if layers and _flattens_images(layers[0]):
        layers = layers[1:]
    linear = [layer for layer in layers[0::2] if type(layer) is nn.Linear]
    relus = [layer for layer in layers[1::2] if type(layer) is nn.ReLU]
    if len(linear) + len(relus) != len(layers) or len(linear) != len(relus) + 1:
        return None
    parameters = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
    if len(parameters) != 2 * len(linear) or any(_is_hooked(part) for part in module.modules()):
        return None
    return (linear[0].in_features, *(layer.out_features for layer in linear))


def _flattens_images(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _is_hooked(module: nn.Module) -> bool:
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return bool(hooks) or "forward" in vars(module)  # such as `fedhaw.models.precision` puts there


def transpose_first_layer(sizes: Sequence[int], model: Tensor, out: Tensor, back: bool) -> None:
    """A copy of `model`, (P,), in `out`, its first weight matrix transposed, or transposed back."""
    inputs, outputs = sizes[0], sizes[1]
    count = inputs * outputs
    shape = (inputs, outputs) if back else (outputs, inputs)
    out[:count].view(shape[::-1]).copy_(model[:count].view(shape).mT)
    out[count:].copy_(model[count:])


class PerceptronPass:
    """Forward and backward through one perceptron, or through A of them side by side.

    Made for a fixed number of samples a pass, and reused: every intermediate has its place.

    Args:
        sizes: the perceptron's sizes.
        models: (P,) its parameters, or (A, P) those of A perceptrons, as `Layout` lays them.
        batch: samples in a pass, for each perceptron.
        transposed: the first, largest weight matrix lies transposed in the models (and in their
            gradients), which makes the product with the samples about a quarter faster; see
            `transpose_first_layer`.
    """

    def __init__(
        self, sizes: Sequence[int], models: Tensor, batch: int, transposed: bool = False
    ) -> None:
        self._sizes, self._transposed_first = tuple(sizes), transposed
        self.batch = batch
        self._weights, self._biases = self._layers_of(models)
        self._transposed = [weight.mT for weight in self._weights]
        rows, hidden, classes = models.shape[:-1], sizes[1:-1], sizes[-1]
        # Classes come first in z and D_L: softmax over few classes is several times faster across
        # the samples than along each of them.
        self._z, self._error = models.new_empty(2, *rows, classes, batch)
        self._h = [models.new_empty(*rows, batch, size) for size in hidden]
        self._d = [models.new_empty(*rows, batch, size) for size in hidden] + [self._error.mT]
        self._d_transposed = [error.mT for error in self._d]
        self._minus_one = models.new_full((*rows, 1, batch), -1.0)
        self._ones = models.new_ones(*rows, 1, batch)
        one_model = models.ndim == 1
        self._product = torch.mm if one_model else torch.bmm
        self._add_product = torch.addmm if one_model else torch.baddbmm

    def descend(self, x: Tensor, y: Tensor, eta: float) -> Tensor:
        """One step of plain SGD on the models themselves.

        Args:
            x: ([A,] batch, ...) samples of any shape with the right number of inputs.
            y: ([A,] batch) labels.
            eta: the learning rate.

        Returns:
            ([A,] batch) the loss of each sample before the step.
        """
        x = x.flatten(y.ndim)
        loss = self._forward(x, y.unsqueeze(-2))
        self._backward()
        self._accumulate(x, self._weights, self._biases, beta=1.0, alpha=-eta / self.batch)
        return loss

    def gradient(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """The gradient of the mean loss, written to `out`, ([A,] P); see `descend` for the rest."""
        x = x.flatten(y.ndim)
        loss = self._forward(x, y.unsqueeze(-2))
        self._backward()
        weights, biases = self._layers_of(out)
        self._accumulate(x, weights, biases, beta=0.0, alpha=1.0 / self.batch)
        return loss

    def error_below(self) -> Tensor:
        """([A,] batch, inputs) the error of the last pass at its samples: D_1 W_1, B-fold."""
        return self._product(self._d[0], self._weights[0])

    def _layers_of(self, models: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        rows, end = models.shape[:-1], 0
        weights: list[Tensor] = []
        biases: list[Tensor] = []
        for inputs, outputs in pairwise(self._sizes):
            middle = end + inputs * outputs
            if self._transposed_first and not weights:
                weights.append(models[..., end:middle].view(*rows, inputs, outputs).mT)
            else:
                weights.append(models[..., end:middle].view(*rows, outputs, inputs))
            end = middle + outputs
            biases.append(models[..., middle:end].view(*rows, 1, outputs))
        return weights, biases

    def _forward(self, x: Tensor, y: Tensor) -> Tensor:
        below = x
        for weight, bias, h in zip(self._transposed, self._biases, self._h, strict=False):
            below = self._add_product(bias, below, weight, out=h).relu_()
        self._add_product(self._biases[-1], below, self._transposed[-1], out=self._z.mT)
        torch.log_softmax(self._z, -2, out=self._error)
        loss: Tensor = self._error.gather(-2, y).neg_().squeeze(-2)
        self._error.exp_().scatter_add_(-2, y, self._minus_one)
        return loss

    def _backward(self) -> None:
        # Every error before any weight: `descend` overwrites the weights they come through.
        for i in range(len(self._weights) - 1, 0, -1):
            error, below = self._d[i - 1], self._h[i - 1]
            self._product(self._d[i], self._weights[i], out=error)
            torch.ops.aten.threshold_backward.grad_input(error, below, 0, grad_input=error)

    def _accumulate(
        self, x: Tensor, weights: list[Tensor], biases: list[Tensor], beta: float, alpha: float
    ) -> None:
        below = x
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            transposed = self._d_transposed[i]
            self._add_product(weight, transposed, below, beta=beta, alpha=alpha, out=weight)
            self._add_product(bias, self._ones, self._d[i], beta=beta, alpha=alpha, out=bias)
            below = self._h[i] if i < len(self._h) else below

"""The loss of every weighted sum of given perceptrons, without ever forming the first layer's.

    z_1(c) = sum_k c_k Z_k,   Z_k = x A_k^T + b_k

The samples do not change, so what the first layers A_k, by far the largest, make of them is
computed once. At the sum with coefficients c, with D_1 the error at z_1 and g the gradient of the
layers above, u_k being client k's,

    dL/dc_k = <D_1, Z_k> + <g, u_k>

which reads batch x width numbers of each model in place of inputs x width.
"""

from typing import Any

import torch
from torch import Tensor

from fedhaw.models.perceptron import PerceptronPass


class PerceptronSpan:
    """The mean loss of a batch as a function of the coefficients of K models.

    Args:
        sizes: of the perceptrons, which have a hidden layer.
        models: (K, P) their parameters.
        x: (batch, ...) the samples.
        y: (batch,) their labels.
    """

    def __init__(self, sizes: tuple[int, ...], models: Tensor, x: Tensor, y: Tensor) -> None:
        clients, (inputs, width, *_) = len(models), sizes
        end = inputs * width
        weights = models[:, :end].view(clients, width, inputs)
        biases = models[:, end : end + width].unsqueeze(1)
        samples = x.flatten(1).expand(clients, -1, -1)
        self._first = torch.baddbmm(biases, samples, weights.mT).flatten(1)
        self._above = models[:, end + width :]
        self._sum, self._gradient = models.new_empty(2, self._above.shape[1])
        self._pass = PerceptronPass(sizes[1:], self._sum, len(y))
        self._y = y

    def slopes(self, coefficients: Any) -> Tensor:
        """(K,) the loss's derivative by each coefficient, at (K,) coefficients."""
        c = torch.as_tensor(coefficients).to(self._sum)
        hidden = (c @ self._first).view(len(self._y), -1).relu_()
        torch.mv(self._above.mT, c, out=self._sum)
        self._pass.gradient(hidden, self._y, self._gradient)
        error = self._pass.error_below().masked_fill_(hidden == 0, 0).flatten()
        below = torch.mv(self._first, error / len(self._y))
        return below + torch.mv(self._above, self._gradient)

"""Optimiser steps on flat models, one or many at a time, from state that starts afresh."""

import torch
from torch import Tensor

from fedhaw.clients.update import LocalUpdate

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""torch.optim.Adam's defaults."""


class Optimiser:
    """What follows the gradient in a step of a `LocalUpdate`, for A clients.

    Args:
        client_update: the optimiser and its settings.
        values: (A, n) the clients' parameters; steps change them.
        gradient: (A, n) where their gradients are found; steps overwrite them.
        anchor: (n,) the global model's parameters, for the proximal term.
        linear: (A, n) what every gradient gains, or None.
    """

    def __init__(
        self,
        client_update: LocalUpdate,
        values: Tensor,
        gradient: Tensor,
        anchor: Tensor,
        linear: Tensor | None = None,
    ) -> None:
        self._client_update, self._linear = client_update, linear
        self._values, self._gradient, self._anchor = values, gradient, anchor
        if client_update.momentum:
            self._velocity = torch.zeros_like(gradient)
        if client_update.optimiser == "adam":
            self._means = torch.zeros_like(gradient).unbind()
            self._squares = torch.zeros_like(gradient).unbind()
            # Clients that hold more samples take more steps: each has its own count.
            self._counts = torch.zeros(len(values), device=values.device).unbind()

    def step(self, rows: slice) -> None:
        """A step of these clients along their gradients."""
        settings = self._client_update
        values, gradient = self._values[rows], self._gradient[rows]
        # Weight decay is the optimiser's, not the loss's, and is not clipped.
        together = settings.proximal + (0.0 if settings.clip else settings.weight_decay)
        if together:
            gradient.add_(values, alpha=together)
        if settings.proximal:
            gradient.sub_(self._anchor, alpha=settings.proximal)
        if self._linear is not None:
            gradient.add_(self._linear[rows])
        if settings.clip:
            lengths = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient.mul_((settings.clip / lengths).clamp_(max=1.0))
            if settings.weight_decay:
                gradient.add_(values, alpha=settings.weight_decay)
        if settings.momentum:
            gradient = self._velocity[rows].mul_(settings.momentum).add_(gradient)
        if settings.optimiser == "sgd":
            values.add_(gradient, alpha=-settings.eta)
            return
        torch._foreach_add_(self._counts[rows], 1)
        # The kernel of torch.optim.Adam(fused=True), without that class's overhead in every step.
        torch._fused_adam_(
            list(values.unbind()),
            list(gradient.unbind()),
            self._means[rows],
            self._squares[rows],
            [],
            self._counts[rows],
            lr=settings.eta,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

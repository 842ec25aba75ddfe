"""What a user of `fedhaw.flower` can get wrong."""

from fedhaw.errors import FedhawError


class FlowerError(FedhawError):
    """Something in a Flower app, its records or its nodes that its author can put right."""


class UnsupportedArrays(FlowerError, ValueError):
    """The global model's arrays are not something a rule can aggregate."""


class NoNodes(FlowerError, RuntimeError):
    """Nobody to train with."""


class EverybodyLost(FlowerError, RuntimeError):
    """Round after round in which no client gave a usable model."""

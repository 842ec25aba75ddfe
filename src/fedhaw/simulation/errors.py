"""What can be wrong with a simulation."""

from fedhaw.errors import FedhawError


class InvalidSimulation(FedhawError, ValueError):
    """A federation whose parts do not fit together, or that cannot be run."""

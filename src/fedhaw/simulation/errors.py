"""What can be wrong with a simulation."""

from fedhaw.errors import FedhawError

AFRESH = "start afresh in another folder (in Python also by resume=False)"
"""What to do where a run cannot go on, at the command line, too."""


class InvalidSimulation(FedhawError, ValueError):
    """A federation whose parts do not fit together, or that cannot be run."""

"""What differential privacy has cost, by the accountant of Google's dp-accounting."""

import functools
import importlib.util
import math

from fedhaw.rules.base import InvalidRule


def require_accountant() -> None:
    """A check that there is somebody to count epsilon.

    Raises:
        InvalidRule: dp-accounting is not installed.
    """
    if importlib.util.find_spec("dp_accounting") is None:
        raise InvalidRule(
            'Privacy needs dp-accounting to count epsilon; pip install "fedhaw[privacy]".'
        )


@functools.lru_cache(maxsize=1024)
def epsilon_of(noise_multiplier: float, times: int, delta: float) -> float:
    """The epsilon of a Gaussian mechanism that is used `times` times on the same client's data.

    Gaussian mechanisms one after the other, each with noise z, are exactly one with noise
    z / sqrt(times), whose epsilon is known in closed form (Balle and Wang, 2018).

    Args:
        noise_multiplier: z, the noise's standard deviation over the sensitivity.
        times: how often.
        delta: the probability with which epsilon may not hold.
    """
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(noise_multiplier / math.sqrt(times), delta))

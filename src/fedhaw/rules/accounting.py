"""What differential privacy has cost, by the accountant of Google's dp-accounting."""

import functools
import importlib.util
import math

from fedhaw.rules.base import InvalidRule

PRECISION = 1e-9
"""By how much an epsilon may be too large, as a share of it or, below 1, of 1."""


def require_accountant() -> None:
    """A check that there is somebody to count epsilon."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise InvalidRule(
            'Privacy needs dp-accounting to count epsilon; pip install "fedhaw[privacy]".'
        )


@functools.lru_cache(maxsize=1024)
def epsilon_of(noise_multiplier: float, times: int, delta: float) -> float:
    """The epsilon of a Gaussian mechanism that is used `times` times on the same client's data.

    Gaussian mechanisms one after the other, each with noise z, are exactly one with noise
    z / sqrt(times), whose delta is known in closed form for every epsilon (Balle and Wang, 2018);
    the epsilon of a delta is found by halving.

    Args:
        noise_multiplier: z, the noise's standard deviation over the sensitivity.
        times: how often.
        delta: the probability with which epsilon may not hold.
    """
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    loss = GaussianPrivacyLoss(noise_multiplier / math.sqrt(times))
    low, high = 0.0, 1.0
    while loss.get_delta_for_epsilon(high) > delta:
        low, high = high, 2 * high
    while high - low > PRECISION * max(1.0, high):
        middle = (low + high) / 2
        below = loss.get_delta_for_epsilon(middle) > delta
        low, high = (middle, high) if below else (low, middle)
    return high  # never less than it is

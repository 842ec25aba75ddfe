"""The part of the test set that a server with proxy data may see, and the part that counts.

FedLAW tunes its coefficients on a small labelled set at the server. The letter takes 10 x classes
samples of the test set for it, at random with seed 42, not balanced by class, and leaves them out
of every method's test accuracy.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhaw.data.errors import DataError

SAMPLES_PER_CLASS = 10
LARGEST_SHARE = 5
"""Unasked, the proxy set takes at most one test sample in so many; only small sets notice."""


def proxy_split(
    test: int | ArrayLike, classes: int, seed: int = 42, size: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A division of the test set into a proxy part and an evaluation part, which never overlap.

    With a test set of 10,000, 10 classes and seed 42 these are the letter's lists, in its order.

    Args:
        test: how many test samples there are, or their labels.
        classes: how many classes there are.
        seed: of the shuffle.
        size: how large the proxy part is, default 10 x classes, but at most a fifth of the test
            set, so that a small one is still worth testing on; fewer than 5 test samples have none.

    Returns:
        Indices of the proxy part and of the evaluation part, in shuffled order.

    Raises:
        DataError: there would be nothing to evaluate on, or no proxy part though one was asked for.
    """
    samples = test if isinstance(test, int) else len(np.asarray(test))
    least = 0 if size is None else 1
    if size is None:
        size = min(SAMPLES_PER_CLASS * classes, samples // LARGEST_SHARE)
    if not least <= size < samples:
        raise DataError(
            f"A proxy set of {size} cannot be taken from {samples} test samples and leave some to "
            f"evaluate on; choose a size from 1 to {samples - 1}."
        )
    order = _torch_permutation(samples, seed)
    return order[:size], order[size:]


def _torch_permutation(count: int, seed: int) -> NDArray[np.int64]:
    """What torch.randperm(count) gives on the CPU after torch.manual_seed(seed).

    The letter's lists were drawn that way. torch does not promise the same numbers in its next
    release; this does, and needs no torch: a Mersenne twister drives a Fisher-Yates shuffle.
    """
    words = np.random.RandomState(seed).randint(0, 2**32, size=count, dtype=np.uint32).tolist()
    order = list(range(count))
    for place, word in enumerate(words):
        other = place + word % (count - place)
        order[place], order[other] = order[other], order[place]
    return np.array(order, dtype=np.int64)

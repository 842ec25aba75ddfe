"""Data of your own: any arrays, and who holds which row.

Here the data are scikit-learn's 1,797 digits of 8 x 8 pixels, and five people who each wrote only
some of the digits: exactly the unevenness that federated learning is about.

`fedhaw run --data examples/own_data.py:digits --split holders` does the same from a shell.
"""

import numpy as np
from sklearn.datasets import load_digits

import fedhaw
from fedhaw.data import Dataset, from_table


def digits() -> Dataset:
    """Rows of 64 floats, labels 0 to 9, and the number of the person who holds each row."""
    bunch = load_digits()
    x, y = bunch.data / 16.0, bunch.target  # (1797, 64) in 0..1, (1797,)
    random = np.random.default_rng(0)
    # Person k wrote the digits 2k and 2k + 1, and one in five is somebody else's.
    holders = np.where(random.random(len(y)) < 0.2, random.integers(0, 5, len(y)), y // 2)
    return from_table(x, y, "sklearn-digits", holders=holders)  # a fifth is kept for testing


if __name__ == "__main__":
    history = fedhaw.simulate(
        fedhaw.FedHAWAuto(),
        digits(),
        split="holders",  # one client for each person
        model="mlp-32",
        eta=0.05,
        batch=16,
        rounds=30,
    )
    print("samples of each class, a row a client:")
    print(history.label_counts)
    print(f"accuracy {history.accuracy[-1]:.3f}")

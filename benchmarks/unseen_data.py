"""Data sets beside those that the default rule was first made on, as .npz files in a folder.

    apt-get install dataset-fashion-mnist r-cran-mlbench r-cran-kernlab; pip install rdata
    python benchmarks/unseen_data.py FOLDER [--later | --last] [--root /]

They come with Debian's packages; `--root` is where these are unpacked, if not installed:

- fashion_mnist: 10,000 of the 60,000 training images, all 10,000 test images, 10 classes;
- letter: letters as 16 numbers each, 10,000 of the first 16,000 for training, 4,000 for testing;
- satimage: 36 numbers of 3 x 3 pixels of a satellite's images, 6 sorts of ground, 4,435 and 2,000;
- dna: splice junctions as 180 bits, 3 classes, 2,000 and 1,186.

With `--later`, four that had no part in making version 8 of the rule, three quarters of each for
training:

- digits: 1,797 of 8 x 8 pixels, 10 classes, of scikit-learn;
- vowel: 990 vowels as 10 numbers, 11 classes;
- spam: 4,601 letters as 57 numbers, spam or not;
- shuttle: 58,000 rows of 9 numbers, 7 classes, of which one has four fifths; 10,000 for training.

With `--last`, seven that had no part in making version 9 either, divided likewise:

- musk: 476 molecules as 166 numbers, musk or not;
- vehicle: 846 silhouettes as 18 numbers, 4 sorts of cars;
- pima: 768 women as 8 numbers, diabetes or not;
- ionosphere: 351 radar echoes as 35 numbers, good or bad;
- soybean: 562 plants as 99 bits, of which every number is one or more, 15 diseases;
- insurance: 9,822 households as 668 such bits and numbers, of which 6 in 100 buy one;
- breast_cancer: 569 tumours as 30 numbers, of scikit-learn.

The first tables are divided as is the custom for each, by rows, the others by lot; all are
standardised by their training part.
"""

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 10_000
IMAGES = "usr/share/datasets/fashion-mnist"
TABLES = "usr/lib/R/site-library"
TABLE = {  # name: its file, its column of labels, rows for training
    "letter": ("mlbench/data/LetterRecognition.rda", "lettr", 16_000),
    "satimage": ("mlbench/data/Satellite.rda", "classes", 4_435),
    "dna": ("mlbench/data/DNA.rda", "Class", 2_000),
}
LATER = {  # name: its file, its column of labels
    "vowel": ("mlbench/data/Vowel.rda", "Class"),
    "spam": ("kernlab/data/spam.rda", "type"),
    "shuttle": ("mlbench/data/Shuttle.rda", "Class"),
}


LAST = {  # name: its file, its column of labels
    "musk": ("kernlab/data/musk.rda", "Class"),
    "vehicle": ("mlbench/data/Vehicle.rda", "Class"),
    "pima": ("mlbench/data/PimaIndiansDiabetes.rda", "diabetes"),
    "ionosphere": ("mlbench/data/Ionosphere.rda", "Class"),
    "soybean": ("mlbench/data/Soybean.rda", "Class"),
    "insurance": ("kernlab/data/ticdata.rda", "CARAVAN"),
}


def some(rows: int) -> NDArray[np.int64]:
    """Which rows are taken where there are more than `MOST`."""
    return np.sort(np.random.RandomState(0).permutation(rows)[:MOST])


def fashion(folder: Path) -> dict[str, Any]:
    """Fashion-MNIST, of four files in the format of MNIST's."""

    def read(name: str, header: int) -> NDArray[np.uint8]:
        return np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=header)

    x, y = read("train-images-idx3-ubyte.gz", 16), read("train-labels-idx1-ubyte.gz", 8)
    taken = some(len(y))
    return {
        "x_train": x.reshape(-1, 28, 28)[taken],
        "y_train": y[taken].astype(np.int64),
        "x_test": read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28),
        "y_test": read("t10k-labels-idx1-ubyte.gz", 8).astype(np.int64),
    }


def read_table(file: Path, labels: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The numbers and the labels of a table of R's."""
    import rdata

    frame = rdata.read_rda(file)[file.stem]
    frame.columns = [str(column) for column in frame.columns]
    y = frame[labels].astype("category").cat.codes.to_numpy().astype(np.int64)
    return frame.drop(columns=labels).astype(str).astype(float).to_numpy(), y


def divided(x: NDArray[np.float64], y: NDArray[np.int64], rows: int) -> dict[str, Any]:
    """A data set of which the first rows, or some of them, are for training."""
    taken = some(rows)
    mean, deviation = x[taken].mean(axis=0), x[taken].std(axis=0)
    x = ((x - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
    return {
        "x_train": x[taken], "y_train": y[taken], "x_test": x[rows:], "y_test": y[rows:],
    }  # fmt: skip


def by_lot(x: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, Any]:
    """A data set of which three quarters are for training."""
    order = np.random.RandomState(0).permutation(len(y))
    return divided(x[order], y[order], len(y) * 3 // 4)


def first(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first four data sets, by name."""
    yield "fashion_mnist", fashion(root / IMAGES)
    for name, (file, labels, rows) in TABLE.items():
        yield name, divided(*read_table(root / TABLES / file, labels), rows)


def later(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The other four."""
    from sklearn.datasets import load_digits

    yield "digits", by_lot(*load_digits(return_X_y=True))
    for name, (file, labels) in LATER.items():
        yield name, by_lot(*read_table(root / TABLES / file, labels))


def read_mixed_table(file: Path, labels: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The same of a table some of whose columns are words, each word a column of bits then."""
    import pandas as pd
    import rdata

    frame = rdata.read_rda(file)[file.stem].dropna()
    frame.columns = [str(column) for column in frame.columns]
    y = frame.pop(labels).astype("category").cat.remove_unused_categories().cat.codes
    words = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    bits = pd.get_dummies(frame, columns=words).astype(float)
    return bits.to_numpy(), y.to_numpy().astype(np.int64)


def last(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The last seven."""
    from sklearn.datasets import load_breast_cancer

    yield "breast_cancer", by_lot(*load_breast_cancer(return_X_y=True))
    for name, (file, labels) in LAST.items():
        yield name, by_lot(*read_mixed_table(root / TABLES / file, labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--later", action="store_true", help="the four that came later")
    which.add_argument("--last", action="store_true", help="the seven that came last")
    parser.add_argument("--root", type=Path, default=Path("/"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source = last if options.last else later if options.later else first
    for name, arrays in source(options.root):
        np.savez(options.folder / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main()

"""Data sets beside those that the default rule was first made on, as .npz files in a folder.

    apt-get install dataset-fashion-mnist r-cran-mlbench; pip install rdata
    python benchmarks/unseen_data.py FOLDER [--root /]

They come with two of Debian's packages; `--root` is where these are unpacked, if not installed:

- fashion_mnist: 10,000 of the 60,000 training images, all 10,000 test images, 10 classes;
- letter: letters as 16 numbers each, 10,000 of the first 16,000 for training, 4,000 for testing;
- satimage: 36 numbers of 3 x 3 pixels of a satellite's images, 6 sorts of ground, 4,435 and 2,000;
- dna: splice junctions as 180 bits, 3 classes, 2,000 and 1,186.

Tables are divided as is the custom for each, by rows, and standardised by their training part.
"""

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 10_000
IMAGES = "usr/share/datasets/fashion-mnist"
TABLES = "usr/lib/R/site-library/mlbench/data"
TABLE = {  # name: R's name of it, its column of labels, rows for training
    "letter": ("LetterRecognition", "lettr", 16_000),
    "satimage": ("Satellite", "classes", 4_435),
    "dna": ("DNA", "Class", 2_000),
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


def table(file: Path, labels: str, rows: int) -> dict[str, Any]:
    """A table of R's, the first rows of which are for training."""
    import rdata

    frame = rdata.read_rda(file)[file.stem]
    frame.columns = [str(column) for column in frame.columns]
    y = frame[labels].astype("category").cat.codes.to_numpy().astype(np.int64)
    x = frame.drop(columns=labels).astype(str).astype(float).to_numpy()
    taken = some(rows)
    mean, deviation = x[taken].mean(axis=0), x[taken].std(axis=0)
    x = ((x - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
    return {
        "x_train": x[taken], "y_train": y[taken], "x_test": x[rows:], "y_test": y[rows:],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", type=Path, default=Path("/"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    np.savez(options.folder / "fashion_mnist.npz", **fashion(options.root / IMAGES))
    for name, (called, labels, rows) in TABLE.items():
        file = options.root / TABLES / f"{called}.rda"
        np.savez(options.folder / f"{name}.npz", **table(file, labels, rows))


if __name__ == "__main__":
    main()

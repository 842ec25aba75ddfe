"""From nothing to a data set, with a server on this machine in place of the public ones."""

import functools
import gzip
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fedhaw.data import dogs, features, load, sources
from fedhaw.data.checksums import md5_of, md5_of_file
from fedhaw.data.cifar import CIFAR10, RECORD, CifarFiles
from fedhaw.data.download import PublishedFile
from fedhaw.data.idx import idx_pieces
from fedhaw.data.images import LabelledImages
from fedhaw.data.mnist import MNIST, IdxFile


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """The folder that the server publishes."""
    folder = tmp_path / "public"
    folder.mkdir()
    return folder


@pytest.fixture
def url(public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("FEDHAW_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache")
    handler = functools.partial(Quiet, directory=str(public))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def publish(public: Path, url: str, name: str) -> PublishedFile:
    return PublishedFile(name, (f"{url}/{name}",), md5_of_file(public / name))


def pack(path: Path, content: dict[str, bytes], mode: str) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, raw in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))


def test_mnist(public: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.RandomState(0)
    files, arrays = [], []
    for original, shape in zip(MNIST.files, [(9, 4, 4), (9,), (5, 4, 4), (5,)], strict=True):
        array = random.randint(0, 10, shape, dtype=np.uint8)
        content = b"".join(bytes(piece) for piece in idx_pieces(array))
        packed = gzip.compress(content)
        (public / f"{original.name}.gz").write_bytes(packed)
        files.append(IdxFile(original.name, shape, md5_of([content]), md5_of([packed])))
        arrays.append(array)
    small = replace(MNIST, files=tuple(files), mirrors=(f"{url}/gone", url))
    monkeypatch.setitem(sources.SOURCES, "mnist", small)

    data = load("mnist", tmp_path / "data")
    for found, made in zip(
        (data.x_train, data.y_train, data.x_test, data.y_test), arrays, strict=True
    ):
        np.testing.assert_array_equal(found, made)
    assert len(list((tmp_path / "data" / "mnist").iterdir())) == 4
    for path in public.iterdir():
        path.unlink()
    again = load("mnist", tmp_path / "data")  # from what was kept
    np.testing.assert_array_equal(again.x_train, data.x_train)
    assert load("mnist", tmp_path / "data", download=False).classes == 10


@pytest.mark.parametrize("layout", ["fetched", "tar", "folder", "batches"])
def test_cifar10(
    public: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    records = np.random.RandomState(1).randint(0, 10, (6, 3, RECORD), dtype=np.uint8)
    content = {name: part.tobytes() for (name, _), part in zip(CIFAR10.all, records, strict=True)}
    sums = [(name, md5_of([raw])) for name, raw in content.items()]
    small = CifarFiles(tuple(sums[:5]), sums[5], records=3)
    name = small.packed.name
    pack(
        public / name, {f"cifar-10-batches-bin/{key}": raw for key, raw in content.items()}, "w:gz"
    )
    folder = tmp_path / "data"
    if layout == "fetched":
        small = replace(small, packed=publish(public, url, name))
    elif layout == "tar":
        folder.mkdir()
        (public / name).rename(folder / name)
    else:
        below = folder / ("cifar10" if layout == "folder" else "cifar-10-batches-bin")
        below.mkdir(parents=True)
        for key, raw in content.items():
            (below / key).write_bytes(raw)

    monkeypatch.setitem(sources.SOURCES, "cifar10", small)
    data = load("cifar10", folder, download=layout == "fetched")
    assert data.name == "cifar10"
    np.testing.assert_array_equal(data.y_train, records[:5, :, 0].ravel())
    np.testing.assert_array_equal(data.x_test[:, 0, 0, 1], records[5, :, 1 + 1024])


def test_stanford_dogs(
    public: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs = {}
    for number in range(6):
        buffer = io.BytesIO()
        Image.new("RGB", (20, 20), (40 * number, 0, 0)).save(buffer, "JPEG")
        photographs[f"Images/breed{number % 2}/{number}.jpg"] = buffer.getvalue()
    pack(public / "images.tar", photographs, "w")
    names = [name.removeprefix("Images/") for name in photographs]
    lists = {}
    for part, listed in (("train", names[:4]), ("test", names[4:])):
        cells = np.empty((len(listed), 1), dtype=object)
        cells[:, 0] = listed
        buffer = io.BytesIO()
        savemat(buffer, {"file_list": cells, "labels": [[int(n[5]) + 1] for n in listed]})
        lists[f"{part}_list.mat"] = buffer.getvalue()
        monkeypatch.setitem(dogs.LIST_SUMS, f"{part}_list.mat", md5_of([buffer.getvalue()]))
    pack(public / "lists.tar", lists, "w")
    monkeypatch.setattr(dogs, "IMAGES", publish(public, url, "images.tar"))
    monkeypatch.setattr(dogs, "LISTS", publish(public, url, "lists.tar"))

    def redness(images: LabelledImages, *_: object) -> np.ndarray:
        """Stands in for the ViT, which test_features covers: the mean of each channel."""
        return np.concatenate([batch.mean(axis=(2, 3)) for batch in images.batches(8, 4)])

    monkeypatch.setattr(features, "load_backbone", lambda *_: None)
    monkeypatch.setattr(features, "_compute", redness)
    data = load("stanford-dogs", tmp_path / "data")
    np.testing.assert_array_equal(data.y_train, [0, 1, 0, 1])
    np.testing.assert_array_equal(data.y_test, [0, 1])
    assert (np.diff(data.x_train[:, 0]) > 0).all()  # the photographs, in the lists' order
    kept = sorted(path.name for path in (tmp_path / "data" / "stanford-dogs").iterdir())
    assert kept == ["images.tar", "lists.tar"]

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedhaw.data import DataError, from_arrays, load
from fedhaw.data.checksums import md5_of
from fedhaw.data.cifar import CIFAR10, RECORD, CifarFiles
from fedhaw.data.sources import SOURCES

RECORDS = 4


@pytest.fixture(scope="module")
def content() -> dict[str, bytes]:
    """Six files like the published ones, of four images each."""
    random = np.random.RandomState(0)
    made = {}
    for name, _ in CIFAR10.all:
        records = random.randint(0, 256, size=(RECORDS, RECORD), dtype=np.uint8)
        records[:, 0] %= 10
        made[name] = records.tobytes()
    return made


@pytest.fixture(scope="module")
def published(content: dict[str, bytes]) -> CifarFiles:
    train = tuple((name, md5_of([content[name]])) for name, _ in CIFAR10.train)
    return CifarFiles(train, ("test_batch.bin", md5_of([content["test_batch.bin"]])), RECORDS)


def save_folder(folder: Path, content: dict[str, bytes]) -> Path:
    for name, raw in content.items():
        (folder / name).write_bytes(raw)
    return folder


def save_tar(
    path: Path, content: dict[str, bytes], extra: list[tarfile.TarInfo] | None = None
) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in extra or []:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
        for name, raw in content.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return path


def test_planes_become_pixels(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles
) -> None:
    data = published.read_folder(save_folder(tmp_path, content))
    assert data.x_train.shape == (5 * RECORDS, 32, 32, 3)
    assert data.x_test.shape == (RECORDS, 32, 32, 3)
    record = content["data_batch_2.bin"][RECORD : 2 * RECORD]
    image = data.x_train[RECORDS + 1]
    assert data.y_train[RECORDS + 1] == record[0]
    for channel in range(3):
        assert image[2, 5, channel] == record[1 + channel * 1024 + 2 * 32 + 5]
    assert data.classes == 10


def test_the_archive_gives_the_same_as_the_folder(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles
) -> None:
    folder = published.read_folder(save_folder(tmp_path, content))
    packed = published.read_tar(save_tar(tmp_path / "cifar.tar.gz", content))
    np.testing.assert_array_equal(folder.x_train, packed.x_train)
    np.testing.assert_array_equal(folder.y_test, packed.y_test)


def test_a_changed_pixel_in_an_archive_is_noticed(data_sets: Path) -> None:
    """The first 10,000 images, put back into records, are data_batch_1.bin to the bit."""
    data, cifar10 = load("cifar10", data_sets, download=False), SOURCES["cifar10"]
    assert isinstance(cifar10, CifarFiles)
    assert len(data.y_train) == cifar10.records
    changed = data.x_train.copy()
    changed[123, 4, 5, 1] ^= 1
    with pytest.raises(DataError, match=r"should equal data_batch_1\.bin is not the published"):
        cifar10.adopt(replace(data, x_train=changed), Path("odd.npz"))


def test_other_images_are_not_cifar10() -> None:
    grey = np.zeros((3, 28, 28), dtype=np.uint8)
    with pytest.raises(DataError, match=r"odd\.npz holds uint8 of shape \(28, 28\)"):
        CIFAR10.adopt(from_arrays(grey, [0, 1, 2], grey, [0, 1, 2]), Path("odd.npz"))


def test_a_missing_short_or_changed_file_is_named(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles
) -> None:
    save_folder(tmp_path, content)
    victim = tmp_path / "data_batch_3.bin"
    victim.write_bytes(content["data_batch_3.bin"][:-1])
    with pytest.raises(DataError, match=r"data_batch_3\.bin has 12,291 bytes instead of 12,292"):
        published.read_folder(tmp_path)
    victim.write_bytes(bytes(len(content["data_batch_3.bin"])))
    with pytest.raises(DataError, match=r"data_batch_3\.bin in .* is not the published file"):
        published.read_folder(tmp_path)
    victim.unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin is missing"):
        published.read_folder(tmp_path)


def test_an_archive_that_lacks_a_file_is_refused(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles
) -> None:
    some = {name: raw for name, raw in content.items() if name != "test_batch.bin"}
    with pytest.raises(DataError, match=r"lacks test_batch\.bin"):
        published.read_tar(save_tar(tmp_path / "cifar.tar.gz", some))


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.SYMTYPE
    member.linkname = target
    return member


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../../outside.bin"),
        tarfile.TarInfo("/etc/outside.bin"),
        tarfile.TarInfo("fine/../../outside.bin"),
        link("cifar-10-batches-bin/test_batch.bin", "/etc/passwd"),
    ],
    ids=["up", "absolute", "within", "link"],
)
def test_an_archive_that_reaches_outside_is_refused(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles, member: tarfile.TarInfo
) -> None:
    path = save_tar(tmp_path / "cifar.tar.gz", content, [member])
    with pytest.raises(DataError, match="lies outside the archive") as caught:
        published.read_tar(path)
    assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_a_member_of_absurd_size_is_not_read(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles
) -> None:
    path = save_tar(tmp_path / "cifar.tar.gz", {**content, "data_batch_1.bin": bytes(10 * RECORD)})
    with pytest.raises(DataError, match=r"data_batch_1\.bin has 30,730 bytes instead of 12,292"):
        published.read_tar(path)


@pytest.mark.parametrize("keep", [0, 10, 1000, 40_000])
def test_a_truncated_archive_is_refused(
    tmp_path: Path, content: dict[str, bytes], published: CifarFiles, keep: int
) -> None:
    path = save_tar(tmp_path / "cifar.tar.gz", content)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cifar\.tar\.gz"):
        published.read_tar(path)

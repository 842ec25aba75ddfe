import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedhaw.data import DataError
from fedhaw.data.checksums import md5_of
from fedhaw.data.idx import idx_pieces, read_idx

ARRAY = np.arange(240, dtype=np.uint8).reshape(10, 24)


def idx_bytes(array: np.ndarray) -> bytes:
    return b"".join(bytes(piece) for piece in idx_pieces(array))


def read(path: Path, array: np.ndarray = ARRAY) -> np.ndarray:
    return read_idx(path, array.shape, md5_of(idx_pieces(array)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx")


@given(
    array=hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=6)),
    packed=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(folder: Path, array: np.ndarray, packed: bool) -> None:
    content = idx_bytes(array)
    path = folder / "round-trip"
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    found = read(path, array)
    assert found.dtype == np.uint8
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


def test_the_header_is_the_published_one() -> None:
    header = next(iter(idx_pieces(np.zeros((60_000, 28, 28), dtype=np.uint8))))
    assert bytes(header) == bytes.fromhex("00000803 0000ea60 0000001c 0000001c")


@given(content=st.binary(max_size=200), start=st.sampled_from([b"", b"\0\0\x08", b"\x1f\x8b\x08"]))
@settings(max_examples=200, deadline=None)
def test_any_other_bytes_are_refused_by_name(folder: Path, content: bytes, start: bytes) -> None:
    path = folder / "anything"
    path.write_bytes(start + content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(path) in str(caught.value)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_gz_is_never_read_as_something_else(folder: Path, data: st.DataObject) -> None:
    content = bytearray(gzip.compress(idx_bytes(ARRAY), mtime=0))
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path = folder / "damaged.gz"
    path.write_bytes(content)
    try:
        found = read(path)
    except DataError as error:
        refusal = str(error)
    else:  # the flipped byte was in a part of the gzip header that carries no meaning
        np.testing.assert_array_equal(found, ARRAY)
        return
    assert str(path) in refusal


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("change", ["shorter", "longer", "other header", "nothing at all"])
def test_other_files_are_refused(tmp_path: Path, change: str, packed: bool) -> None:
    content = idx_bytes(ARRAY)
    made = {
        "shorter": content[:-1],
        "longer": content + b"\0",
        "other header": idx_bytes(ARRAY.reshape(24, 10)),
        "nothing at all": b"",
    }[change]
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(made) if packed else made)
    with pytest.raises(DataError, match="images is not the published file"):
        read(path)


def test_no_more_is_unpacked_than_there_should_be(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20), 1))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="not the published file"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        read(tmp_path / "nowhere")

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedhaw.data import DataError
from fedhaw.data.idx import idx_pieces, read_idx


def idx_bytes(array: np.ndarray) -> bytes:
    return b"".join(bytes(piece) for piece in idx_pieces(array))


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
    read = read_idx(path, array.shape)
    assert read.dtype == np.uint8
    assert read.flags.writeable
    np.testing.assert_array_equal(read, array)


def test_the_header_is_the_published_one() -> None:
    header = next(iter(idx_pieces(np.zeros((60_000, 28, 28), dtype=np.uint8))))
    assert bytes(header) == bytes.fromhex("00000803 0000ea60 0000001c 0000001c")


@given(content=st.binary(max_size=200), start=st.sampled_from([b"", b"\0\0\x08", b"\x1f\x8b\x08"]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused_by_name(folder: Path, content: bytes, start: bytes) -> None:
    path = folder / "anything"
    path.write_bytes(start + content)
    try:
        read_idx(path)
    except DataError as error:
        refusal = str(error)
    else:
        return
    assert str(path) in refusal


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_gz_is_never_read_as_something_else(folder: Path, data: st.DataObject) -> None:
    array = np.arange(240, dtype=np.uint8).reshape(10, 24)
    content = bytearray(gzip.compress(idx_bytes(array), mtime=0))
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path = folder / "damaged.gz"
    path.write_bytes(content)
    try:
        read = read_idx(path)
    except DataError as error:
        refusal = str(error)
    else:  # the flipped byte was in a part of the gzip header that carries no meaning
        np.testing.assert_array_equal(read, array)
        return
    assert str(path) in refusal


HOSTILE = {
    "empty": (b"", "not an idx file"),
    "wrong magic": (b"\x89PNG\r\n\x1a\n", "not an idx file"),
    "other type": (b"\0\0\x0d\x01" + bytes(8), "type 13"),
    "no dimensions": (b"\0\0\x08\0", "0 dimensions"),
    "many dimensions": (b"\0\0\x08\xff" + b"\xff" * 1020, "255 dimensions"),
    "header cut short": (b"\0\0\x08\x03\0\0", "within its header"),
    "too short": (b"\0\0\x08\x01\0\0\0\x09abc", "promises 9 bytes, but 3 follow"),
    "too long": (b"\0\0\x08\x01\0\0\0\x02abc", "promises 2 bytes, but 3 follow"),
    "absurd": (b"\0\0\x08\x04" + b"\xff" * 16, "more than any idx file"),
    "absurd in 64 bits": (b"\0\0\x08\x02" + struct.pack(">2I", 2**31, 2**31), "more than any"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, case: str, packed: bool) -> None:
    content, says = HOSTILE[case]
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(content) if packed else content)
    if packed and case in ("too short", "too long"):
        says = "fewer than the 9" if case == "too short" else "more than the 2"
    with pytest.raises(DataError, match=says) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_promise_is_not_allocated(tmp_path: Path) -> None:
    """A header may promise 2 GB; memory follows what is there, not what is promised."""
    import tracemalloc

    path = tmp_path / "promise.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 2**31) + bytes(1000)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="fewer"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_shape_that_is_not_the_known_one_is_refused_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(idx_bytes(np.zeros((3, 4), dtype=np.uint8)))
    with pytest.raises(DataError, match=r"\(3, 4\), not \(3, 5\)"):
        read_idx(path, (3, 5))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        read_idx(tmp_path / "nowhere")

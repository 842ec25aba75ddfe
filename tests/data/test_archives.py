import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhaw.data import DataError, load
from fedhaw.data.archives import load_archive, read_npz

# Their annotations do not allow for arrays given by **.
savez: Any = np.savez
savez_compressed: Any = np.savez_compressed

DIVIDED = {
    "x_train": np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.zeros((2, 4, 4), dtype=np.uint8),
    "y_test": np.array([2, 0]),
}


def save_zip(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("write", [savez, savez_compressed])
def test_a_users_file_is_loaded_as_it_is(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "mine.npz", **DIVIDED, unrelated=np.array(["text"]))
    data = load(tmp_path / "mine.npz")
    assert (data.name, data.classes) == ("mine", 3)
    np.testing.assert_array_equal(data.x_train, DIVIDED["x_train"])
    np.testing.assert_array_equal(data.y_test, DIVIDED["y_test"])


def test_a_file_may_say_more(tmp_path: Path) -> None:
    whole = np.array([0, 1, 2, 0, 1, 2, 3, 3])
    more = {"classes": np.array(7), "holders": np.arange(6), "y_train_all": whole}
    savez(tmp_path / "more.npz", **DIVIDED, **more)
    data = load(str(tmp_path / "more.npz"))
    assert data.classes == 7
    np.testing.assert_array_equal(data.holders, np.arange(6))
    np.testing.assert_array_equal(data.whole_labels, whole)


def test_a_file_is_also_looked_for_in_the_data_folder(tmp_path: Path) -> None:
    savez(tmp_path / "mine.npz", **DIVIDED)
    assert load("mine.npz", tmp_path).name == "mine"
    with pytest.raises(DataError, match=r"other\.npz cannot be read: No such file"):
        load("other.npz", tmp_path)


def test_column_major_arrays_keep_their_order(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    savez(tmp_path / "f.npz", a=array)
    np.testing.assert_array_equal(read_npz(tmp_path / "f.npz")["a"], array)


def test_features_of_stanford_dogs(data_sets: Path) -> None:
    path = data_sets / "dogs_vit_features.npz"
    data = load(path)
    assert data.classes == 120
    assert data.input_shape == (768,)
    assert len(data.y_train) + len(data.y_test) == 2749
    assert data.holders is not None
    assert set(data.holders.tolist()) == {1, 6}
    # Every training sample is a row of the file with its own label and client. (A few photographs
    # are in the published data twice, two of them under two breeds.)
    with np.load(path, allow_pickle=False) as stored:
        rows = {
            (row.tobytes(), int(label), int(client))
            for row, label, client in zip(stored["x"], stored["y"], stored["client"], strict=True)
        }
    for row, label, client in zip(data.x_train, data.y_train, data.holders, strict=True):
        assert (row.tobytes(), int(label), int(client)) in rows
    assert set(data.y_test) <= set(data.y_train)
    again = load(path)
    np.testing.assert_array_equal(again.x_test, data.x_test)


class Bomb:
    """Unpickling this creates a file, so a test can tell whether anybody did."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    trap = np.array([Bomb(tmp_path / "ran")], dtype=object)
    savez(tmp_path / "trap.npz", **{**DIVIDED, "y_train": trap}, allow_pickle=True)
    with pytest.raises(DataError, match=r"trap\.npz holds pickled objects as y_train\.npy"):
        load(tmp_path / "trap.npz")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    with pytest.raises(DataError, match=r"pickle\.npz is damaged or not an \.npz file"):
        load(tmp_path / "pickle.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", DIVIDED)
def test_a_missing_array_is_named(tmp_path: Path, key: str) -> None:
    savez(tmp_path / "part.npz", **{name: a for name, a in DIVIDED.items() if name != key})
    with pytest.raises(DataError, match=r"part\.npz lacks arrays.*x_train, y_train, x_test, y_t"):
        load(tmp_path / "part.npz")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"y_train": np.arange(5)}, "5 entries for 6 samples"),
        ({"x_train": np.full((6, 3), np.nan), "x_test": np.zeros((2, 3))}, "not finite"),
        ({"classes": np.array(2)}, "beyond the last of its 2 classes"),
        ({"classes": np.array([1, 2])}, "not one whole number"),
        ({"classes": np.array(-3)}, "not one whole number"),
        ({"y_test": np.array(["dog", "cat"])}, "not an array of numbers"),
    ],
)
def test_arrays_that_do_not_fit_name_the_file(
    tmp_path: Path, changed: dict[str, np.ndarray], says: str
) -> None:
    savez(tmp_path / "odd.npz", **{**DIVIDED, **changed})
    with pytest.raises(DataError, match=says) as caught:
        load(tmp_path / "odd.npz")
    assert "odd.npz" in str(caught.value)


def test_an_absurd_shape_is_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**13,)}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    path = save_zip(tmp_path / "vast.npz", {"x_train.npy": buffer.getvalue() + bytes(10)})
    with pytest.raises(DataError, match=r"vast\.npz promises 10,000,000,000,000 bytes, but 10"):
        read_npz(path)


def test_an_array_made_to_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedhaw.data.archives.HARMLESS_BYTES", 1 << 20)
    zeros = np.zeros(8 << 20, dtype=np.uint8)
    savez_compressed(tmp_path / "zeros.npz", a=zeros)
    with pytest.raises(DataError, match="made to fill the memory"):
        read_npz(tmp_path / "zeros.npz")
    savez(tmp_path / "plain.npz", a=zeros)  # the same, unpacked, is the user's own business
    assert read_npz(tmp_path / "plain.npz")["a"].size == 8 << 20


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damage_is_noticed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    buffer = io.BytesIO()
    savez_compressed(buffer, **DIVIDED)
    content = bytearray(buffer.getvalue())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content)
    try:
        read = load_archive(path)
    except DataError as error:
        refusal = str(error)
    else:  # a byte of no consequence, such as a date in the zip's directory
        np.testing.assert_array_equal(read.x_train, DIVIDED["x_train"])
        np.testing.assert_array_equal(read.y_train, DIVIDED["y_train"])
        return
    assert "damaged.npz" in refusal


def test_a_shape_that_is_not_of_numbers_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}\n"
    with zipfile.ZipFile(tmp_path / "odd.npz", "w") as archive:
        size = len(header).to_bytes(2, "little")
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + size + header + b"\0" * 4)
    with pytest.raises(DataError, match="damaged"):
        load_archive(tmp_path / "odd.npz")


def test_more_classes_than_anybody_has_are_refused(tmp_path: Path) -> None:
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "many.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=2**40)
    with pytest.raises(DataError, match=r"many\.npz .* classes .* is 1099511627776"):
        load_archive(tmp_path / "many.npz")

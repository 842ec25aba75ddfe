"""One file: what is written comes back, and damage is told."""

import json
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedhaw.checkpoints import CheckpointError, DamagedCheckpoint, Part, read, write

RANDOM = np.random.default_rng(0)
PARTS = {
    "model": Part({"": RANDOM.random(7, np.float32)}, {}),
    "memory of 12": Part(
        {
            "a.b": np.arange(6, dtype=">i8").reshape(2, 3),
            "half": RANDOM.random((3, 5)).astype(ml_dtypes.bfloat16),
            "columns": RANDOM.random((4, 9))[:, 2:5],
            "one": np.array(True),
            "none": np.zeros((0, 3), np.float16),
        },
        {"names": ["x", 7, None], "deep": {"eta": 0.1}},
    ),
    "facts": Part({}, {"round": 3}),
}


def test_all_parts_come_back(tmp_path: Path) -> None:
    write(tmp_path / "c", PARTS)
    found = read(tmp_path / "c")
    assert list(found) == list(PARTS)
    for name, part in PARTS.items():
        assert found[name].facts == part.facts
        assert found[name].arrays.keys() == part.arrays.keys()
        for key, array in part.arrays.items():
            assert found[name].arrays[key].dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found[name].arrays[key], array)
    assert set(load_file(tmp_path / "c")) >= {"model", "memory of 12.a.b", "memory of 12.one"}


def test_keys_that_json_makes_texts_of(tmp_path: Path) -> None:
    write(tmp_path / "c", {"nodes": Part({}, {"of": {10: "a", 9: "b"}})})
    assert read(tmp_path / "c")["nodes"].facts == {"of": {"10": "a", "9": "b"}}


def test_equal_checkpoints_are_equal_files(tmp_path: Path) -> None:
    write(tmp_path / "a", PARTS)
    write(tmp_path / "b", PARTS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("step", [1, 7])
def test_any_flipped_bit_and_any_missing_end_is_noticed(tmp_path: Path, step: int) -> None:
    file = tmp_path / "c"
    write(file, PARTS)
    whole = file.read_bytes()
    for place in range(0, len(whole), 11):
        flipped = bytearray(whole)
        flipped[place] ^= step
        file.write_bytes(flipped)
        try:
            changed = read(file)
        except CheckpointError:
            continue
        # Only what means nothing may change: spaces in the header.
        assert json.dumps([p.facts for p in changed.values()]) == json.dumps(
            [p.facts for p in PARTS.values()]
        )
        np.testing.assert_array_equal(changed["model"].arrays[""], PARTS["model"].arrays[""])
    for length in range(0, len(whole), 31):
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpoint):
            read(file)


def test_a_matrix_with_gaps_is_written_without_a_copy(tmp_path: Path) -> None:
    """FedHAW keeps the learnt columns of a wider matrix, ten models or more of them."""
    matrix = RANDOM.random((8, 300_000), dtype=np.float32)
    tracemalloc.start()
    write(tmp_path / "c", {"state": Part({"previous": matrix[:, :-100]}, {})})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < matrix.nbytes / 8
    found = read(tmp_path / "c")["state"].arrays["previous"]
    np.testing.assert_array_equal(found, matrix[:, :-100])


def test_what_the_format_does_not_know_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'x\.z' is of complex128, which cannot be stored"):
        write(tmp_path / "c", {"x": Part({"z": np.zeros(2, complex)}, {})})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "metadata",
    [{"fedhaw-checkpoint": '{"version": 99}'}, {"format": "fedhaw-state", "version": "2"}],
)
def test_a_newer_file_is_not_called_damaged(tmp_path: Path, metadata: dict[str, str]) -> None:
    save_file({}, tmp_path / "c", metadata=metadata)
    with pytest.raises(CheckpointError, match="newer fedhaw; upgrade") as error:
        read(tmp_path / "c")
    assert not isinstance(error.value, DamagedCheckpoint)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"version": 2}', '{"version": "x"}', '{"version": 1}']
)
def test_a_foreign_document_is_damage(tmp_path: Path, text: str) -> None:
    save_file({"model": np.zeros(2)}, tmp_path / "c", metadata={"fedhaw-checkpoint": text})
    with pytest.raises(DamagedCheckpoint):
        read(tmp_path / "c")

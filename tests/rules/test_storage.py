"""States on disk: what is written comes back, and what is not a state is told apart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from suite import Federation
from tests.checkpoints import first_format

import fedhaw
from fedhaw import CheckpointError, load_state, save_state
from fedhaw.checkpoints import Part, write
from fedhaw.rules import pack_state, unpack_state
from fedhaw.rules.fedhaw import FedHAWState

RULE = fedhaw.FedHAW(0.1, 1e-3, 1e-2)


@pytest.fixture
def state() -> FedHAWState:
    *_, (_, _, last) = Federation(4).rounds(RULE, "numpy", 3)
    assert isinstance(last, FedHAWState)
    return last


def test_a_truncated_file(state: FedHAWState, tmp_path: Path) -> None:
    file = tmp_path / "state"
    save_state(state, file)
    whole = file.read_bytes()
    for length in {0, 4, 8, 40, len(whole) // 2, len(whole) - 1}:
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"state.*truncated or foreign"):
            load_state(RULE, file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        load_state(RULE, tmp_path / "nowhere")


def test_foreign_files(tmp_path: Path) -> None:
    file = tmp_path / "other"
    save_file({"weight": np.zeros(3)}, file)
    with pytest.raises(CheckpointError, match="not a fedhaw state"):
        load_state(RULE, file)
    file.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(CheckpointError, match="truncated or foreign"):
        load_state(RULE, file)


def test_a_newer_format(tmp_path: Path) -> None:
    file = tmp_path / "new"
    save_file({}, file, metadata={"format": "fedhaw-state", "version": "99", "state": "{}"})
    with pytest.raises(CheckpointError, match="upgrade fedhaw"):
        load_state(RULE, file)


@pytest.mark.parametrize(
    "description",
    ["", "[]", '{"kind": "FedHAWState", "fields": {"gamma": {}}}', '{"kind": "FedHAWState"}'],
)
def test_a_damaged_description(tmp_path: Path, description: str) -> None:
    file = tmp_path / "damaged"
    save_file({}, file, metadata={"format": "fedhaw-state", "version": "1", "state": description})
    with pytest.raises(CheckpointError, match="damaged"):
        load_state(RULE, file)


def test_a_state_of_the_first_version() -> None:
    file = first_format.FOLDER / "state.safetensors"
    state = load_state(first_format.RULE, file)
    assert state.clients == ("0", "1", "2")
    np.testing.assert_array_equal(state.weights, np.full(3, 1 / 3))
    assert state.delta is not None
    assert state.delta.shape == (15,)


def test_the_state_in_a_checkpoint(tmp_path: Path) -> None:
    file = first_format.FOLDER / "checkpoint.safetensors"
    assert load_state(first_format.RULE, file).clients == ("0", "1", "2")
    write(tmp_path / "c", {"model": Part({}, {})})
    with pytest.raises(CheckpointError, match="holds no rule's state"):
        load_state(first_format.RULE, tmp_path / "c")


def test_the_state_of_another_rule(state: FedHAWState, tmp_path: Path) -> None:
    save_state(state, tmp_path / "haw")
    with pytest.raises(CheckpointError, match="FedHAWState, but FedAvg needs a FedAvgState"):
        load_state(fedhaw.FedAvg(), tmp_path / "haw")


def test_names_that_json_cannot_hold(state: FedHAWState, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="texts or whole numbers"):
        save_state(replace(state, clients=(("a", 1),)), tmp_path / "state")
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


def test_names_keep_their_kind(tmp_path: Path) -> None:
    federation = Federation(3)
    federation.names = (7, "7", "x")
    *_, (_, _, state) = federation.rounds(RULE, "numpy", 2)
    save_state(state, tmp_path / "state")
    loaded = load_state(RULE, tmp_path / "state")
    assert loaded.clients == (7, "7", "x")
    assert dict(loaded.lambda_of) == dict(state.lambda_of)


def test_a_state_of_an_earlier_version(state: FedHAWState, tmp_path: Path) -> None:
    """It summed gamma up, and knew no length that training accounts for."""
    part = pack_state(state)
    fields = {k: v for k, v in part.facts["fields"].items() if k != "trained_length"}
    facts = {**part.facts, "fields": {**fields, "scaling": {"value": 0.3}}}
    loaded = unpack_state(RULE, Part(part.arrays, facts))
    assert loaded.gamma == state.gamma
    assert loaded.trained_length == 0


def test_a_state_within_a_state(tmp_path: Path) -> None:
    """A wrapped rule's coefficients, arrays and vectors by client come back with it."""
    rule = fedhaw.Clipped(fedhaw.Clipped(fedhaw.MIFA(), limit=0.4), limit=0.5)
    *_, (_, _, state) = Federation(3).rounds(rule, "numpy", 2)
    save_state(state, tmp_path / "state")
    loaded = load_state(rule, tmp_path / "state")
    assert loaded.metrics == state.metrics
    assert loaded.clients == state.clients
    (arrays, _), (again, _) = pack_state(state), pack_state(loaded)
    assert {"inner.inner.total", "inner.inner.updates.2"} <= set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_state_around_another_rule(tmp_path: Path) -> None:
    rule = fedhaw.Clipped(fedhaw.MIFA())
    *_, (_, _, state) = Federation(3).rounds(rule, "numpy", 2)
    save_state(state, tmp_path / "state")
    with pytest.raises(CheckpointError, match="MIFAState, but Clipped needs a FedAvgState"):
        load_state(fedhaw.Clipped(), tmp_path / "state")


def test_a_state_of_other_arithmetic(tmp_path: Path) -> None:
    """FedHAW-auto's first version learnt a step."""
    file = tmp_path / "old"
    description = '{"kind": "FedHAWAutoState", "fields": {"step": {"value": 2.0}}}'
    save_file({}, file, metadata={"format": "fedhaw-state", "version": "1", "state": description})
    with pytest.raises(CheckpointError, match="another version of FedHAWAuto"):
        load_state(fedhaw.FedHAWAuto(), file)

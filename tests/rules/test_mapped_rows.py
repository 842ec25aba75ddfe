"""Rows of a mapped file: never shared, given back, and gone with the last of them."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suite import BACKENDS

import fedhaw
from fedhaw.rules import Round, mapped_rows
from fedhaw.rules.mapped_rows import NoRoomForRows, empty_row, kept_row

P = 300_000
LARGE = np.zeros(P, np.float32)


@pytest.fixture(autouse=True)
def no_rows() -> None:
    gc.collect()
    assert not mapped_rows._files, "a test before kept rows"


def address(row: Any) -> int:
    return int(row.ctypes.data)


def test_a_large_row_is_mapped_and_a_small_one_is_not() -> None:
    assert empty_row(np.zeros(10)).base is None
    row = kept_row(LARGE + 7)
    assert (row.shape, row.dtype.name, row.flags.writeable) == ((P,), "float32", False)
    assert row.base is not None
    assert (row == 7).all()
    small = kept_row(np.ones(3))
    assert not small.flags.writeable


def test_a_row_nobody_holds_is_used_again_and_one_in_use_is_not() -> None:
    kept = [kept_row(LARGE + k) for k in range(20)]
    assert len({address(row) for row in kept}) == 20
    view, place = kept[3][5:9], address(kept[4])
    kept[3] = kept[4] = kept[0]
    gc.collect()
    others = [kept_row(LARGE - 1) for _ in range(15)]
    assert place in {address(row) for row in others}
    assert (view == 3).all(), "a view keeps its row"
    assert [row[0] for row in kept[5:]] == list(range(5, 20))


def test_the_file_goes_with_its_last_row() -> None:
    row = kept_row(LARGE)
    other = kept_row(np.zeros(P + 1))
    assert len(mapped_rows._files) == 2
    del row
    gc.collect()
    assert len(mapped_rows._files) == 1
    del other
    gc.collect()
    assert not mapped_rows._files


def test_a_full_disk_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(NoRoomForRows, match=r"8 vectors of 1 MB .*No space left.*TMPDIR"):
        kept_row(LARGE)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["MIFA", "FedVARP"])
def test_states_that_are_kept_stay_as_they_were(name: str, backend: str, tmp_path: Path) -> None:
    """Rounds of a large model, going on from any of the states, and from one on disk."""
    rule, to_backend = getattr(fedhaw, name)(), BACKENDS[backend]
    random = np.random.default_rng(0)
    w, state = random.standard_normal(P, dtype=np.float32), rule.init()
    passed: list[tuple[Any, Round, np.ndarray]] = []
    for t in range(4):
        W = w + 0.1 * random.standard_normal((3, P), dtype=np.float32)
        received = np.array([True, t != 2, t == 0])
        asked = Round(to_backend(w), to_backend(W), [1, 2, 3], received)
        before = state
        model, state = rule.aggregate(state, asked)
        w = np.asarray(model)
        passed.append((before, asked, w.copy()))
    for before, asked, expected in passed:
        again, _ = rule.aggregate(before, asked)
        np.testing.assert_array_equal(np.asarray(again), expected)
    before, asked, expected = passed[-1]
    fedhaw.save_state(before, tmp_path / "state")
    loaded = fedhaw.load_state(rule, tmp_path / "state")
    for row in loaded.updates.values():
        assert row.base is not None, "mapped again"
    again, _ = rule.aggregate(loaded, asked)
    np.testing.assert_array_equal(np.asarray(again), expected)


def test_the_interpreter_ends_quietly_while_rows_are_held() -> None:
    script = """
import numpy as np, sys
from fedhaw.rules.mapped_rows import kept_row
sys.modules["__main__"].held = [kept_row(np.zeros(300_000)) for _ in range(20)]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (0, "")

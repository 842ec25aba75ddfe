"""The final model, by its arrays' names."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from safetensors.numpy import load_file
from typer.testing import CliRunner

from fedhaw.checkpoints import CheckpointError, Part, write
from fedhaw.checkpoints.export import export
from fedhaw.cli.app import app
from fedhaw.flower import RuleStrategy


def test_the_file_holds_what_the_run_returned(
    flower: SimpleNamespace, arrays: ArrayRecord, tmp_path: Path
) -> None:
    arrays["a.running_mean"] = Array(np.ones(3, np.float64))
    arrays["half"] = Array(np.ones((2, 2), np.float16))
    grid = flower.Grid({k: flower.moving(k, 0.1 * k) for k in (1, 2)})
    strategy = RuleStrategy(checkpoint=tmp_path / "checkpoint.safetensors", fraction_evaluate=0.0)
    result = strategy.start(grid, arrays, num_rounds=2)
    done = CliRunner().invoke(app, ["export", str(tmp_path), str(tmp_path / "model.safetensors")])
    assert done.exit_code == 0
    assert "6 arrays" in done.stdout
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == set(result.arrays.keys())
    for name, array in result.arrays.items():
        expected = array.numpy()
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def test_a_file_without_names_gets_a_sentence(tmp_path: Path) -> None:
    write(tmp_path / "c.safetensors", {"model": Part({"": np.zeros(3)}, {})})
    for file in ("c.safetensors", "nothing.safetensors"):
        with pytest.raises(CheckpointError, match=file):
            export(tmp_path / file, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()

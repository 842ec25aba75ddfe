"""One federation, said in three ways, gives the same bits."""

import numpy as np
import pytest

from fedhaw import FedAvg, History, simulate
from fedhaw.cli import main
from fedhaw.experiments import read_recipe, run_recipe


def test_python_the_command_line_and_an_empty_file_run_the_same_federation(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("same")
    monkeypatch.chdir(folder)
    (folder / "empty.toml").write_text("")
    # The number of rounds alone is said, for speed; its default is compared in test_places.py.
    python = simulate(FedAvg(), "mnist-5k", rounds=3)
    file = run_recipe(read_recipe("empty.toml", rule="fedavg", rounds=3))
    line = ["run", "--data", "mnist-5k", "--rule", "fedavg", "--rounds", "3", "--out", "out"]
    with pytest.raises(SystemExit) as ending:
        main(line)
    assert ending.value.code == 0
    assert python.run.config == file.run.config == History.read("out").run.config
    np.testing.assert_array_equal(python.model, file.model)
    resumed = simulate(FedAvg(), "mnist-5k", rounds=3, out="out")  # finished: read back, not run
    np.testing.assert_array_equal(resumed.model, file.model)

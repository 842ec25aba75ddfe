"""Folders of the first release, which called two settings otherwise, go on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhaw import FedAvg, simulate
from fedhaw.settings import FORMER_NAMES, fill, of_today
from fedhaw.simulation import Federation, History

FORMER = {now: before for before, now in FORMER_NAMES.items()}


def test_a_run_whose_settings_had_other_names_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"model": "logistic", "train_samples": 500, "engine": "sequential"}
    whole = simulate(FedAvg(), rounds=3, **settings)
    of_now = Federation.config

    def of_then(federation: Federation) -> dict[str, Any]:
        config = {FORMER.get(key, key): value for key, value in of_now(federation).items()}
        del config["deadline"]
        assert {"update", "scale"} <= set(config)
        return config

    with monkeypatch.context() as then:
        then.setattr(Federation, "config", of_then)
        simulate(FedAvg(), rounds=2, out=tmp_path, **settings)
    grown = simulate(FedAvg(), rounds=3, out=tmp_path, **settings)
    assert grown.model is not None
    assert whole.model is not None
    np.testing.assert_array_equal(grown.model, whole.model)
    assert len(History.read(tmp_path).records) == 3


def test_a_config_is_read_by_the_names_of_today() -> None:
    config = {"update": {"eta": 1.0}, "scale": "matched", "rounds": 3}
    assert of_today(config) == {
        "client_update": {"eta": 1.0}, "input_scale": "matched", "rounds": 3
    }  # fmt: skip


def test_a_model_that_had_another_name_is_the_same_model() -> None:
    assert of_today({"model": "mlp-128-128"}) == {"model": "mlp"}
    assert fill({"model": "mlp-128-128"})["model"] == "mlp"

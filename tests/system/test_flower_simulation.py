"""The ready app in Flower's own simulation, which runs clients as Ray actors."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = [pytest.mark.system, pytest.mark.slow]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "flower"


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


flower = _loaded("flower_processes")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs flwr[simulation]")
def test_equals_the_simulator_with_cohorts_and_losses(tmp_path: Path) -> None:
    from fedhaw.experiments.recipe import read_recipe
    from fedhaw.experiments.running import run_recipe

    app, out = tmp_path / "app", tmp_path / "out"
    flower.copy_app(EXAMPLE, app)
    recipe = (
        'data = "mnist-5k"\nclients = 4\ncohort = 3\nloss_rate = 0.8\nrounds = 4\nrule = "fedhaw"\n'
    )
    (app / "recipe.toml").write_text(recipe)
    simulated = run_recipe(read_recipe(app / "recipe.toml", engine="sequential"), None)
    with flower.deployment(tmp_path / "flower") as made:
        made.start_link("--simulation")
        made.federation = "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=2"
        made.run(app, out=out, round_deadline=120.0)
        made.wait_for(lambda: flower.finished(out), "four rounds", 240)

    rounds = [record for record in flower.records(out) if record["kind"] == "round"]
    assert [r["lost"] for r in rounds] == [r.lost for r in simulated.records]
    assert [set(r["weights"]) for r in rounds] == [set(r.weights) for r in simulated.records]
    assert any(r["lost"] for r in rounds)
    assert simulated.model is not None
    model = load_file(out / "checkpoint.safetensors")["model"]
    np.testing.assert_allclose(model, simulated.model, rtol=1e-4, atol=1e-6)

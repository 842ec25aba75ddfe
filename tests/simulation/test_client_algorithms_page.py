"""The programs of docs/client-algorithms.md run as they stand, and resume in another engine."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedhaw import FedHAW, History

Simulate = Callable[..., History]
PAGE = Path(__file__).parents[2] / "docs" / "client-algorithms.md"


@pytest.mark.parametrize("name", ["Drift", "Moon"])
def test_a_program_of_the_page_runs_and_resumes(run: Simulate, tmp_path: Path, name: str) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [program for program in programs if f"class {name}" in program]
    file = tmp_path / "mine.py"
    file.write_text(program)
    settings = {"client_update": f"{file}:{name}", "uplink": 0.5, "checkpoint_every": 1}
    rule = FedHAW(0.1, 1e-2, 1e-1)
    whole = run(rule, rounds=6, **settings)
    run(rule, rounds=3, out=tmp_path / "run", **settings)
    resumed = run(rule, rounds=6, out=tmp_path / "run", engine="processes", workers=2, **settings)
    assert whole.model is not None
    assert resumed.model is not None
    assert whole.model.tobytes() == resumed.model.tobytes()
    assert whole.evaluation["accuracy"][-1] > 0.5

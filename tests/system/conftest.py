"""Fixtures of the tests of whole programs."""

import os
from typing import Any

import pytest
from tests.system.sweeps import WHOLE, outcome, start, wait_for


@pytest.fixture(scope="session")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a sweep left behind that nobody disturbed, run once however many processes test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "one_at_a_time"
    try:
        folder.mkdir()
    except FileExistsError:
        wait_for((folder / "done").exists, 300)
    else:
        sweep = start(folder, *WHOLE, "--jobs", "1")
        _, said = sweep.communicate(timeout=300)
        assert sweep.returncode == 0, said
        (folder / "done").touch()
    return outcome(folder)

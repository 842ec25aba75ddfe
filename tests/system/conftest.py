"""Fixtures of the tests of whole programs."""

from typing import Any

import pytest
from tests.system.sweeps import outcome, start


@pytest.fixture(scope="session")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("one")
    done = start(folder, "--rounds", "30", "--jobs", "1")
    _, said = done.communicate(timeout=300)
    assert done.returncode == 0, said
    return outcome(folder)

"""Fixtures that several packages' tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with whole data sets, beside the checkout; CI has it."""
    folder = Path(os.environ.get("FEDHAW_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the data sets of {folder}, which is not here")
    return folder

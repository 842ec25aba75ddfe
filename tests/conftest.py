"""Fixtures that several packages' tests share."""

import os
import sys
from pathlib import Path

import pytest

# These kill processes, fill disks and close descriptors as only POSIX systems let them.
collect_ignore = (
    [
        "cli/test_mistakes.py",
        "flower/test_resume.py",
        "rules/test_mapped_rows.py",
        "simulation/engines/test_failures.py",
        "simulation/test_disks.py",
        "simulation/test_resume.py",
    ]
    if sys.platform == "win32"
    else []
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, lest one of them is left over when everything else is done."""
    items.sort(key=lambda item: item.get_closest_marker("system") is None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with whole data sets, beside the checkout; CI has it."""
    folder = Path(os.environ.get("FEDHAW_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the data sets of {folder}, which is not here")
    return folder

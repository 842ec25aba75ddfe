"""Fixtures that several packages' tests share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedhaw.data.source import Source

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


PUBLISHED = Path(os.environ.get("FEDHAW_SHARED", Path(__file__).parents[2] / "shared")) / "data"
"""The folder with the published data sets, beside the checkout; CI has it."""


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, "Source"]]:
    """A folder of stand-ins, and the data sets by which they are taken for the published ones."""
    from tests.stand_ins import write_stand_ins

    folder = tmp_path_factory.mktemp("stand-ins")
    return folder, write_stand_ins(folder)


@pytest.fixture(
    scope="module", params=["stand-ins", *(["published"] if PUBLISHED.is_dir() else [])]
)
def data_sets(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder with the letter's data sets: stand-ins, and the published ones where they are."""
    if request.param == "published":
        yield PUBLISHED
        return
    from fedhaw.data.sources import SOURCES

    folder, sources = request.getfixturevalue("stand_ins")
    with pytest.MonkeyPatch.context() as patch:
        for name, source in sources.items():
            patch.setitem(SOURCES, name, source)
        yield folder


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder with the published data sets, for slow tests of what real images give."""
    if not PUBLISHED.is_dir():
        pytest.skip(f"needs the data sets of {PUBLISHED}, which is not here")
    return PUBLISHED

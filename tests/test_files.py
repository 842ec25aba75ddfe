"""What is said when a file cannot be written."""

import errno
from pathlib import Path

import pytest

from fedhaw.files import FileWriteError, write_text, writing


def test_a_folder_in_the_way_is_not_a_lack_of_space(tmp_path: Path) -> None:
    (tmp_path / "table.md").mkdir()
    with pytest.raises(FileWriteError, match="directory; remove what stands there, or choose"):
        write_text(tmp_path / "table.md", "text")


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "right to write"), (errno.EIO, "another")],
)
def test_the_advice_fits_the_reason(number: int, advice: str) -> None:
    with pytest.raises(FileWriteError, match=advice), writing(Path("x")):
        raise OSError(number, "reason")

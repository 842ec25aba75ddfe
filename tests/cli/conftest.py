"""The command line called within the test's own process: quick, and its output captured."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedhaw.cli import main


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """Runs `fedhaw` with some arguments in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDHAW_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ending:
            main(arguments)
        code = ending.value.code
        said = capsys.readouterr()
        return Ended(code if isinstance(code, int) else 0, said.out, said.err)

    return run

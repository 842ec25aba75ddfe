"""The command line called within the test's own process: quick, and its output captured."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

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


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Small models on several threads wait for each other when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

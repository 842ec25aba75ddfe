"""The histories of the letter's experiments that are kept in the repository."""

import re
from pathlib import Path

import pytest

import fedhaw
from fedhaw.cli import main

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "reproduction"
PAGE = (DOCS / "reproduction.md").read_text(encoding="utf-8")
RUNS = re.findall(r"^    fedhaw (reproduce .+ --data-dir DIR.*)$", PAGE, re.MULTILINE)
TABLES = [run for run in RUNS if "--rules" not in run]


@pytest.mark.parametrize("data", ["cifar10", "dogs", "mnist"])
def test_the_guard_on_long_updates_refused_nobody(data: str) -> None:
    """Whoever is lost in them was lost by the uplink."""
    folders = {file.parent for file in KEPT.glob(f"{data}-*/**/history.jsonl*")}
    histories = [fedhaw.History.read(folder) for folder in folders]
    guarded = [h for h in histories if h.run.config.get("length_limit")]
    reasons = {why for h in guarded for record in h.records for why in record.lost.values()}
    assert len(guarded) >= 18  # MNIST's other runs are older than the guard
    assert reasons == {"uplink"}


@pytest.mark.parametrize("command", TABLES)
def test_the_page_shows_the_table_that_is_made_of_them(command: str, tmp_path: Path) -> None:
    of_kept = command.replace("--data-dir DIR", "").split()
    with pytest.raises(SystemExit, match="0"):
        main([*of_kept, "--kept", str(KEPT), "--out", str(tmp_path)])
    (made,) = tmp_path.glob("*.md")
    title, *_, rows, _ = made.read_text(encoding="utf-8").strip().split("\n\n")
    assert f"{title}\n\n{rows}\n" in PAGE


def test_every_table_of_the_page_has_its_command() -> None:
    titles = re.findall(r"^\*\*(?:MNIST|Stanford Dogs|CIFAR-10): ", PAGE, re.MULTILINE)
    assert len(titles) == len(TABLES) == 10

"""The histories of the letter's experiments that are kept in the repository."""

from pathlib import Path

import pytest

import fedhaw

KEPT = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.mark.parametrize("data", ["cifar10", "dogs", "mnist"])
def test_the_guard_on_long_updates_refused_nobody(data: str) -> None:
    """Whoever is lost in them was lost by the uplink."""
    folders = {file.parent for file in KEPT.glob(f"{data}-*/**/history.jsonl*")}
    histories = [fedhaw.History.read(folder) for folder in folders]
    guarded = [h for h in histories if h.run.config.get("length_limit")]
    reasons = {why for h in guarded for record in h.records for why in record.lost.values()}
    assert len(guarded) >= 18  # MNIST's other runs are older than the guard
    assert reasons == {"uplink"}

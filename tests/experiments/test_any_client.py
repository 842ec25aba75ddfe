"""FedHAW over any client update, at the tiniest scale."""

from pathlib import Path

import pytest

from fedhaw.experiments import any_client
from fedhaw.experiments.any_client import AnyClientPlan
from fedhaw.experiments.job import Event
from fedhaw.experiments.letter import LetterConditions


def test_every_client_under_every_rule(
    data_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: any_client.CLIENTS[name] for name in ("SGD", "SCAFFOLD")}
    monkeypatch.setattr(any_client, "CLIENTS", few)
    changes = (("data_dir", str(data_sets)), ("rounds", 5), ("train_samples", 1000))
    plan = AnyClientPlan((0,), LetterConditions("tiny", changes=changes), tmp_path)
    assert plan.moments == (0, 1, 2, 3, 4)
    result = any_client.any_client(plan)
    assert result.accuracy.shape == (2, 2, 3, 1, 5)
    text = (tmp_path / "any-client-tiny-pe0.5.md").read_text()
    assert "Smaller than the letter's experiment: 5 of 200 rounds" in text
    assert all(name in text for name in (*few, "FedAvg", "FedHAW", "FedHAW-auto"))
    first, averaged = (result.tables[0].rows[i] for i in (1, 0))
    assert averaged[-1] is None
    assert str(first[-1]).startswith(("+", "-"))
    cells = result.described()["tables"][1]["cells"]
    assert len(cells) == 6
    # A memory is no stand-in for another: SCAFFOLD's runs are their own.
    assert cells[0]["accuracy"] != cells[3]["accuracy"]
    events: list[Event] = []
    any_client.any_client(plan, events.append)
    assert {event.kind for event in events} == {"skipped"}

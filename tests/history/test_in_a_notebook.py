"""A history as data frames and as a picture."""

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhaw import History, HistoryError, MissingExtra
from fedhaw.history import ClientFacts, Learnt, RoundRecord, RunRecord


@pytest.fixture
def history() -> History:
    run = RunRecord(
        "mine <b>",
        {"name": "fedavg"},
        config={"alpha": 0.1},
        clients={"0": ClientFacts(3), "1": ClientFacts(1)},
    )
    records = [
        RoundRecord(
            0,
            {"accuracy": 0.5, "loss": 2.0},
            {"gamma": 0.1, "layers": (1.0, None)},
            {"0": 0.75, "1": 0.25},
            client_loss={"0": 1.5, "1": 1.0},
            seconds={"train": 0.2},
        ),
        RoundRecord(1, {"accuracy": 0.6}, {}, {"0": 1.0}, {"1": "uplink"}, {"0": 1.25}),
    ]
    return History(run, records, finished=True)


def test_a_row_a_round(history: History) -> None:
    frame = history.to_pandas()
    assert list(frame.index) == [0, 1]
    assert frame.index.name == "round"
    assert frame["accuracy"].tolist() == [0.5, 0.6]
    assert frame["lost"].tolist() == [0, 1]
    assert frame["seconds/train"][0] == 0.2
    assert np.isnan(frame["loss"][1])
    assert np.isnan(frame["layers[1]"][0])
    assert frame["layers[0]"][0] == 1.0


def test_a_row_a_round_and_client(history: History) -> None:
    frame = history.to_pandas(by="client")
    assert frame.index.names == ["round", "client"]
    assert frame.loc[(0, "1"), "training loss"] == 1.0
    assert frame.loc[(1, "1"), "lost"] == "uplink"
    assert np.isnan(frame.loc[(1, "1"), "weight"])
    assert frame["weight"].groupby("round").sum().tolist() == [1.0, 1.0]


def test_what_a_rule_calls_like_another_column_takes_nobodys_place(history: History) -> None:
    learnt: dict[str, Learnt] = {"accuracy": 7.0, "lost": 8.0}
    learnt |= {"weight": {"0": 9.0}, "trust": {"1": 10.0}}
    record = replace(history.records[0], metrics=learnt)
    frame = History(history.run, [record]).to_pandas()
    assert (frame["accuracy"][0], frame["lost"][0]) == (0.5, 0)
    assert (frame["rule/accuracy"][0], frame["rule/lost"][0]) == (7.0, 8.0)
    by_client = History(history.run, [record]).to_pandas(by="client")
    assert by_client["weight"].tolist() == [0.75, 0.25]
    assert by_client.loc[(0, "0"), "rule/weight"] == 9.0
    assert by_client.loc[(0, "1"), "trust"] == 10.0
    assert np.isnan(by_client.loc[(0, "0"), "trust"])


def test_what_a_user_measures_takes_nobodys_place(history: History) -> None:
    record = replace(history.records[1], evaluation={"accuracy": 0.5, "lost": 7.0})
    frame = History(history.run, [record]).to_pandas()
    assert (frame["lost"][0], frame["evaluation/lost"][0]) == (1, 7.0)


def test_another_kind_of_row_is_refused(history: History) -> None:
    wrong: dict[str, Any] = {"by": "week"}
    with pytest.raises(HistoryError, match="choose"):
        history.to_pandas(**wrong)


def test_without_pandas_a_sentence(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedhaw\[pandas\]'"):
        history.to_pandas()


def test_the_picture_is_well_formed(history: History) -> None:
    html = history._repr_html_()
    root = ElementTree.fromstring(html)
    assert root.find(".//polyline") is not None
    assert len(root.findall(".//rect")) == 1
    assert "mine &lt;b&gt;" in html


def test_a_run_that_has_not_begun_has_no_curve() -> None:
    html = History(RunRecord("new", {"name": "fedavg"}), [])._repr_html_()
    assert "not finished" in html
    assert "<svg" not in html


def test_a_long_run_is_thinned() -> None:
    records = [RoundRecord(t, {"accuracy": 0.5}) for t in range(5000)]
    html = History(RunRecord("long", {"name": "fedavg"}), records)._repr_html_()
    assert len(html) < 10_000

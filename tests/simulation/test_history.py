import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedhaw import FedAvg, FedHAW, FedLWS
from fedhaw.history import FORMAT, History, HistoryError, RoundRecord

Simulate = Callable[..., History]


def test_the_file_says_what_docs_say(run: Simulate, tmp_path: Path) -> None:
    history = run(FedHAW(0.1, 1e-2, 1e-1), out=tmp_path, uplink=0.5, name="mine")
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    first, *rounds, last = map(json.loads, lines)
    assert first["kind"] == "run"
    assert first["format"] == FORMAT
    assert first["name"] == "mine"
    assert first["rule"]["name"] == "fedhaw"
    assert first["rule"]["eta_lambda"] == 0.1
    assert first["config"]["uplink"] == {"name": "letter", "p_e": 0.5}
    assert sum(client["examples"] for client in first["clients"].values()) == 120
    assert all(sum(c["labels"]) == c["examples"] for c in first["clients"].values())
    assert History.read(tmp_path).records == history.records
    assert History.read(tmp_path).run == history.run
    assert last["kind"] == "end"
    assert last["status"] == "finished"
    for record in rounds:
        assert list(record) == [
            "kind", "round", "evaluation", "metrics", "weights", "lost", "client_loss",
            "client_accuracy", "seconds", "bytes", "note", "crc32",
        ]  # fmt: skip


def test_it_can_be_read_while_the_run_goes_on(run: Simulate, tmp_path: Path) -> None:
    def look(record: RoundRecord) -> None:
        seen = History.read(tmp_path)
        assert seen.records[-1] == record
        assert not seen.finished

    run(FedAvg(), out=tmp_path, on_round=look)
    assert History.read(tmp_path).finished


def test_a_line_cut_short_does_not_count(run: Simulate, tmp_path: Path) -> None:
    run(FedAvg(), out=tmp_path)
    file = tmp_path / "history.jsonl"
    content = file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == 10]
    for size in range(0, len(content), 97):
        file.write_bytes(content[:size])
        if size < ends[0]:
            with pytest.raises(HistoryError, match="no complete line yet"):
                History.read(file)
        else:
            assert len(History.read(file).records) == min(sum(e <= size for e in ends) - 1, 5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: [b"hello\n"], "Line 1 of .* is not a JSON object"),
        (lambda lines: [b"[1]\n"], "Line 1 of .* is not a JSON object"),
        (lambda lines: [b"[" * 100_000 + b"\n"], "is not a JSON object"),
        (lambda lines: [*lines, b"[1]\n"], "is not a JSON object"),
        (lambda lines: [b"\xff\xfe\n"], "is not a JSON object"),
        (lambda lines: [b"{}\n"], "is not of kind"),
        (lambda lines: lines[1:], "is not of kind"),
        (lambda lines: [b'{"kind":"run","format":99}\n'], "history format 99, and this fedhaw"),
        (lambda lines: [*lines[:2], *lines[3:]], "Line 3 .* is round 2 where round 1"),
        (lambda lines: [*lines[:2], b"{torn\n", *lines[2:]], "Line 3 of"),
    ],
)
def test_what_is_not_a_history_is_refused(
    run: Simulate,
    tmp_path: Path,
    change: Callable[[list[bytes]], list[bytes]],
    says: str,
) -> None:
    run(FedAvg(), out=tmp_path)
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(HistoryError, match=says):
        History.read(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"history\.jsonl cannot be read: No such file"):
        History.read(tmp_path)


def test_arrays_of_a_history(run: Simulate) -> None:
    haw = run(FedHAW(0.1, 1e-2, 1e-1), rounds=3)
    assert haw.metrics["gamma"].shape == (3,)
    assert haw.metrics["gamma"][0] == 0
    assert haw.metrics["gamma"][2] != 0
    np.testing.assert_allclose(haw.weights.sum(axis=1), 1)
    assert haw.loss.shape == (3,)
    assert run(FedAvg(), rounds=2).metrics == {}
    assert run(FedLWS(), rounds=3).metrics["gamma"].shape == (3, 2)
    some = run(FedAvg(), rounds=3, cohort=2).weights
    assert np.isnan(some).sum() == 6


def test_numbers_json_does_not_know_are_left_out(run: Simulate, tmp_path: Path) -> None:
    # Steps this large blow every model up; the run must still be written down.
    history = run(FedAvg(), out=tmp_path, eta=1e30, rounds=2)
    text = (tmp_path / "history.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert history.lost.tolist() == [4, 4]
    assert all(math.isfinite(loss) for r in history.records for loss in r.client_loss.values())

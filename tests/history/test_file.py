"""Histories on disk: whole, cut off, compressed, changed, somebody else's."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhaw.files import FileWriteError
from fedhaw.history import (
    EndRecord,
    History,
    HistoryError,
    HistoryFile,
    HistoryFollower,
    RoundRecord,
    RunRecord,
    find_histories,
    has_ended,
    parse,
)

RUN = RunRecord("mine", {"name": "fedavg"}, config={"rounds": 3})
ROUNDS = [RoundRecord(t, evaluation={"accuracy": t / 10}) for t in range(3)]


def write(folder: Path, *records: Any) -> Path:
    file = HistoryFile(folder / "history.jsonl")
    for record in records or (RUN, *ROUNDS, EndRecord()):
        file.append(record)
    file.close()
    return file.path


def write_format_1(folder: Path, *lines: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "history.jsonl"
    head = {"kind": "run", "format": 1, "name": "x", "config": {}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    return path


def test_file_folder_and_compressed_copy_read_alike(tmp_path: Path) -> None:
    path = write(tmp_path / "plain")
    packed = tmp_path / "packed" / "history.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for place in (path, path.parent, packed, packed.parent):
        history = History.read(place)
        assert (history.run, history.records, history.finished) == (RUN, tuple(ROUNDS), True)
    assert History.read(packed.parent).path == packed


def test_a_history_cut_at_any_byte_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    for packed in (False, True):
        for end in range(len(whole)):
            part = whole[:end]
            place = path.with_suffix(".jsonl.gz") if packed else path
            place.write_bytes(gzip.compress(part, 1) if packed else part)
            lines = part.count(b"\n")
            if not lines:
                with pytest.raises(HistoryError, match="no complete line yet; try again"):
                    History.read(place)
                continue
            history = History.read(place)
            assert len(history.records) == min(lines - 1, 3)
            assert history.finished == has_ended(place, 3) == (lines == 5)


def test_a_compressed_history_cut_at_any_byte_keeps_whole_lines(tmp_path: Path) -> None:
    many = [RoundRecord(t, evaluation={"accuracy": t / 7}) for t in range(50)]
    packed = gzip.compress(write(tmp_path, RUN, *many).read_bytes())
    place, kept = tmp_path / "history.jsonl.gz", []
    for end in range(0, len(packed), 5):
        place.write_bytes(packed[:end])
        content = parse(place)
        assert content.records == many[: len(content.records)]
        kept.append(len(content.records))
    assert kept == sorted(kept)
    assert len(set(kept)) > 25


def test_garbage_behind_what_is_safe_is_cut_off_when_a_run_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path)
    safe = path.read_bytes()
    for garbage in (b"\0" * 40 + b"\n", b"[1]\n", b"{torn\n", safe.splitlines(True)[1]):
        path.write_bytes(safe + garbage)
        with pytest.raises(HistoryError, match="Line 6 of "):
            History.read(path)
        content = parse(path, as_far_as_possible=True)
        assert content.records == ROUNDS
        assert not content.finished
        assert not has_ended(path, len(ROUNDS))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [], "holds no complete line yet"),
        (lambda lines: [b"hello\n"], "Line 1 of .* is not a JSON object"),
        (lambda lines: lines[1:], 'Line 1 of .* is not of kind "run"'),
        (lambda lines: [*lines[:2], *lines[3:]], "Line 3 of .* is round 2 where round 1 should"),
        (lambda lines: [*lines[:3], lines[1]], "Line 4 of .* is round 0 where round 2 should"),
        (lambda lines: [*lines[:2], lines[2].replace(b"0.1", b"0.7")], "Line 3 .* is damaged"),
        (lambda lines: [lines[0], b'{"kind":"round","round":0}\n'], "Line 2 of .* is damaged"),
        (lambda lines: [lines[0].replace(b'"format":2', b'"format":1')], "Line 1 .* is damaged"),
    ],
)
def test_what_was_changed_is_refused_in_a_sentence(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    path = write(tmp_path)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(HistoryError, match=said) as refused:
        History.read(path)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith((".", "?"))
    assert not has_ended(path, len(ROUNDS))


def test_a_history_of_format_1_goes_on_in_todays_format(tmp_path: Path) -> None:
    path = write_format_1(tmp_path, {"kind": "round", "round": 0, "accuracy": 0.5, "gamma": 0.25})
    file = HistoryFile(path)
    file.append(RoundRecord(1, evaluation={"accuracy": 0.75}, metrics={"gamma": 0.5}))
    file.append(EndRecord())
    file.close()
    history = History.read(path)
    assert history.accuracy.tolist() == [0.5, 0.75]
    assert history.metrics["gamma"].tolist() == [0.25, 0.5]
    assert history.finished
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"0.75", b"0.85"), lines[3]]))
    with pytest.raises(HistoryError, match=r"Line 3 of .* is damaged"):
        History.read(path)


def test_windows_line_ends_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert len(History.read(path).records) == 3


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history.jsonl")
    with pytest.raises(FileWriteError, match="Another run is writing"):
        HistoryFile(tmp_path / "history.jsonl")
    file.close()
    HistoryFile(tmp_path / "history.jsonl").close()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"history\.jsonl cannot be read: No such file"):
        History.read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.jsonl")
    with pytest.raises(HistoryError, match="cannot be read: it is a pipe"):
        History.read(tmp_path)
    follower = HistoryFollower(tmp_path / "history.jsonl")
    assert follower.look()
    assert "it is a pipe" in follower.trouble


def test_every_history_is_found_once(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b")
    write(tmp_path / "a" / "c")
    assert len(find_histories([tmp_path, tmp_path / "a", tmp_path / "a" / "b"])) == 2
    assert len(History.read_all([tmp_path / "a" / "b" / "history.jsonl"])) == 1


def test_an_empty_folder_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"^No history\.jsonl was found under .*\.$"):
        History.read_all([tmp_path])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"There is no folder .*nowhere; give"):
        History.read_all([tmp_path / "nowhere"])


def test_all_kept_histories_are_read_most_of_which_have_format_1() -> None:
    kept = Path(__file__).parents[2] / "docs" / "reproduction" / "mnist-full"
    histories = History.read_all([kept])
    assert len(histories) > 100
    for history in histories:
        assert history.finished
        assert history.rounds_planned == len(history.records)
        assert np.isfinite(history.accuracy[-1])
        assert set(history.metrics) <= {"gamma", "momentum", "distrusted"}
        assert history.label_counts is not None
        np.testing.assert_allclose(np.nansum(history.weights, axis=1), 1, atol=2e-3)

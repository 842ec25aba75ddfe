"""A history read while it is written: only what is new, and all of it."""

import gzip
from pathlib import Path

import pytest

from fedhaw.history import (
    Content,
    EndRecord,
    HistoryFile,
    HistoryFollower,
    Record,
    RoundRecord,
    RunRecord,
    encode,
)
from fedhaw.history.file import take

RUN = RunRecord("mine", {"name": "mine"}, config={"rounds": 9})


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were parsed."""
    lines: list[bytes] = []

    def noted(content: Content, line: bytes, where: str, end: int) -> None:
        lines.append(line)
        take(content, line, where, end)

    monkeypatch.setattr("fedhaw.history.following.take", noted)
    return lines


def test_only_new_lines_are_parsed(tmp_path: Path, parsed: list[bytes]) -> None:
    path = tmp_path / "history.jsonl"
    follower = HistoryFollower(path)
    assert follower.look()
    assert "cannot be read" in follower.trouble
    file = HistoryFile(path)
    file.append(RUN)
    for t in range(3):
        file.append(RoundRecord(t))
        assert follower.look()
        assert not follower.look()
        assert follower.trouble == ""
        assert len(follower.content.records) == t + 1
    file.append(EndRecord())
    assert follower.look()
    assert follower.content.finished
    assert len(parsed) == 5
    file.close()


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    line = encode(RoundRecord(0))
    path.write_bytes(encode(RUN) + line[:20])
    follower = HistoryFollower(path)
    assert follower.look()
    assert follower.content.records == []
    path.write_bytes(encode(RUN) + line)
    assert follower.look()
    assert len(follower.content.records) == 1


def test_a_run_that_goes_on_from_its_checkpoint_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    rounds: list[Record] = [RoundRecord(t, seconds={"train": 1.0}) for t in range(6)]
    path.write_bytes(b"".join(map(encode, [RUN, *rounds])))
    follower = HistoryFollower(path)
    follower.look()
    again: list[Record] = [RoundRecord(t, seconds={"train": 2.0}) for t in range(3, 9)]
    path.write_bytes(b"".join(map(encode, [RUN, *rounds[:3], *again])))  # longer than before
    assert follower.look()
    assert [r.seconds["train"] for r in follower.content.records] == [1.0] * 3 + [2.0] * 6
    path.write_bytes(encode(RUN))  # shorter
    assert follower.look()
    assert follower.content.records == []


def test_damage_is_told_and_what_was_read_stays(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(encode(RUN) + encode(RoundRecord(0)))
    follower = HistoryFollower(path)
    follower.look()
    with path.open("ab") as file:
        file.write(encode(RoundRecord(1)).replace(b'"round":1', b'"round":2'))
    assert follower.look()
    assert "Line 3 of" in follower.trouble
    assert "checksum does not match" in follower.trouble
    assert not follower.look()
    assert len(follower.content.records) == 1


def test_a_compressed_history_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    path.write_bytes(gzip.compress(encode(RUN) + encode(RoundRecord(0))))
    follower = HistoryFollower(path)
    assert follower.look()
    assert not follower.look()
    assert len(follower.content.records) == 1

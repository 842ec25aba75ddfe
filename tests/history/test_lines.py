"""A line says what its record says, and notices when it was changed."""

import json
import random
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhaw.history import (
    ClientFacts,
    EndRecord,
    HistoryError,
    Record,
    RoundRecord,
    RunRecord,
    encode,
    metrics_of,
)
from fedhaw.history.lines import decode

RUN = RunRecord(
    name="mine",
    rule={"name": "fedlws", "clip": [0.1, 0.2]},
    seed=7,
    config={"rounds": 3, "data": {"name": "digits"}, "cohort": None},
    clients={"0": ClientFacts(3, (1, 2)), "näher": ClientFacts()},
    parameters=40,
    fedhaw="0.1.0",
)
ROUND = RoundRecord(
    round=0,
    evaluation={"accuracy": 0.875, "loss": 0.1 + 0.2, "accuracy/authors": 0.5},
    metrics={"step": 1.25, "gamma": (0.5, None, 1e-300)},
    weights={"0": 0.25, "näher": 0.75},
    lost={"1": "uplink"},
    client_loss={"0": 2.5},
    client_accuracy={"0": 1.0},
    seconds={"train": 0.5},
    bytes={"up": 160, "down": 320},
    note="as planned",
)
DOCS = Path(__file__).parents[2] / "docs" / "history-format.md"


@pytest.mark.parametrize("record", [RUN, ROUND, RoundRecord(3), EndRecord(seconds=1.5)])
def test_a_line_gives_its_record_back(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line, "here") == record


def test_any_changed_byte_is_noticed() -> None:
    draw = random.Random(0)
    for record in (RUN, ROUND):
        line = encode(record).rstrip(b"\n")
        for place in range(len(line)):
            changed = bytearray(line)
            changed[place] ^= 1 << draw.randrange(7)
            if b"\n" in changed or b"\r" in changed:
                continue
            with pytest.raises(HistoryError):
                decode(bytes(changed), "here", must_check=True)


def test_a_flipped_digit_gets_a_sentence() -> None:
    line = encode(ROUND).replace(b"0.875", b"0.975")
    with pytest.raises(HistoryError, match=r"^Line 3 of x is damaged, its checksum .*; restore"):
        decode(line, "Line 3 of x")


def test_numbers_json_does_not_know_are_left_out_or_null() -> None:
    @dataclass(frozen=True)
    class State:
        metrics: dict[str, Any] = field(
            default_factory=lambda: {
                "list": np.array([[1.0, np.nan], [np.inf, 2.0]]),
                "number": np.float32(0.5),
                "gone": float("nan"),
            }
        )

    learnt = metrics_of(State())
    assert learnt == {"list": (1.0, None, None, 2.0), "number": 0.5}
    line = encode(RoundRecord(0, metrics=learnt))
    assert b'"list":[1.0,null,null,2.0]' in line
    with pytest.raises(HistoryError, match="'word' of SimpleNamespace is a str; it must be a num"):
        metrics_of(__import__("types").SimpleNamespace(metrics={"word": "much"}))
    assert metrics_of(object()) == {}


def test_half_a_surrogate_pair_can_be_written() -> None:
    read = decode(encode(RunRecord("a\ud800b", {"name": "x"})), "here")
    assert isinstance(read, RunRecord)
    assert read.name == "a?b"


FIRST = '{"kind":"run","format":1,'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (FIRST + '"seed":"three"}', "has the seed 'three', which is not a whole number"),
        (FIRST + '"seed":1.5}', "has the seed 1.5"),
        (FIRST + '"name":"\\ud800"}', "is not a JSON object in UTF-8"),
        (FIRST + '"config":' + '{"a":' * 300 + "1" + "}" * 300 + "}", "is nested too deeply"),
        (FIRST + '"config":' + '{"a":' * 99_000 + "1" + "}" * 99_000 + "}", "is not a JSON obj"),
        (FIRST + f'"seed":{"9" * 5000}}}', "is not a JSON object"),
        ('{"kind":"run"}', "says history format None, and this fedhaw reads 1 to 2; upgrade"),
        ('{"kind":"run","format":true}', "says history format True"),
        ('{"kind":"run","format":3}', "says history format 3"),
        ('{"kind":"run","format":2}', "has no checksum"),
        ('{"kind":"round"}', "has round None, which is not a whole number from 0"),
        ('{"kind":"round","round":-1}', "has round -1"),
        ('{"kind":"round","round":' + "9" * 400 + "}", r"has round 9{57}\.\.\."),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(line: str, said: str) -> None:
    with pytest.raises(HistoryError, match=f"^Line 1 of x {said}") as refused:
        decode(line.encode() + b"\n", "Line 1 of x")
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 250


def test_measured_nonsense_of_others_is_left_out() -> None:
    many = "9" * 400
    line = (
        FIRST + '"rule":"fedavg","clients":{"0":{"examples":true,"labels":[1,"2"]},"1":3,'
        f'"2":{{"examples":{many},"labels":[{many}]}}}},"config":7,"parameters":"many"}}'
    )
    run = decode(line.encode(), "here")
    assert isinstance(run, RunRecord)
    assert run.clients == {"0": ClientFacts(), "1": ClientFacts(), "2": ClientFacts()}
    assert (run.name, run.rule, run.config, run.parameters) == (
        "fedavg",
        {"name": "fedavg"},
        {},
        None,
    )
    line = (
        f'{{"kind":"round","round":0,"accuracy":null,"loss":NaN,"seconds":3,"gamma":"x",'
        f'"weights":{{"0":"a","1":{many},"2":0.5}},"lost":[],"bytes":{{"up":-1}},"note":4}}'
    )
    assert decode(line.encode(), "here") == RoundRecord(0, weights={"2": 0.5})
    assert decode(b'{"kind": "from the future"}', "here") is None


def test_a_line_of_format_1_reads_as_if_written_today() -> None:
    line = (
        b'{"kind":"round","round":4,"accuracy":0.5,"loss":2.0,"accuracies":{"authors":0.25},'
        b'"gamma":[0.5,null],"weights":{"0":1.0},"lost":{},"note":null}'
    )
    assert decode(line, "here") == RoundRecord(
        4,
        evaluation={"accuracy": 0.5, "loss": 2.0, "accuracy/authors": 0.25},
        metrics={"gamma": (0.5, None)},
        weights={"0": 1.0},
    )


@pytest.mark.parametrize(
    "record", [RUN, ROUND, EndRecord()], ids=lambda record: type(record).__name__
)
def test_the_formats_page_lists_every_key(record: Record) -> None:
    values = json.loads(encode(record))
    tables = re.findall(r"(?:^\|.*\n)+", DOCS.read_text(), re.M)
    (table,) = (table for table in tables if f'| `kind` | `"{values["kind"]}"` |' in table)
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(values)
    assert set(values) >= {item.name for item in fields(record)}

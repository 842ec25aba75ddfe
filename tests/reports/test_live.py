"""The page that keeps up with runs, and the server that sends it."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedhaw.history import EndRecord, HistoryFile, RoundRecord, RunRecord
from fedhaw.reports.live import LivePage

RUN = RunRecord("fedavg", {"name": "fedavg"}, config={"rounds": 4})


def test_news_are_what_was_written_since(tmp_path: Path) -> None:
    live = LivePage([tmp_path / "later"])
    assert "Waiting for a history.jsonl in later." in live.page()
    assert "No round is over yet." in live.page()
    file = HistoryFile(tmp_path / "later" / "a" / "history.jsonl")
    file.append(RUN)
    seen = -1
    for t in range(4):
        lost = {"<7>": "not finite", "8": "uplink"}
        file.append(RoundRecord(t, {"accuracy": 0.5}, lost=lost, seconds={"train": 2.0}))
        live._rest_until = 0.0
        news = live.news(seen)
        assert news is not None
        assert news["version"] > seen
        seen = news["version"]
        assert news["data"]["metrics"][0]["rounds"] == [*range(1, t + 2)]
        told = news["parts"]["live"]
        assert f"{t + 1} of 4" in told
        assert f"about {2 * (3 - t)} s" in told
        assert f"round {t + 1}: client &lt;7&gt; (not finite), client 8 (uplink)" in told
        live._rest_until = 0.0
        assert live.news(seen) is None
    file.append(EndRecord())
    live._rest_until = 0.0
    ended = live.news(seen)
    assert ended is not None
    assert "finished" in ended["parts"]["live"]
    file.close()


def test_a_silent_run_and_a_damaged_one_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    file = HistoryFile(path)
    file.append(RUN)
    file.append(RoundRecord(0, seconds={"train": 1.0}))
    file.close()
    os.utime(path, (0, time.time() - 600))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "history.jsonl").write_text("<nothing>\n")
    page = LivePage([tmp_path]).page()
    assert "silent for 10 min" in page
    assert "b/history.jsonl is not a JSON object in UTF-8" in page


def test_runs_that_are_alike_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for place in ("monday/a", "monday/b", "tuesday", "other"):
        file = HistoryFile(tmp_path / place / "history.jsonl")
        file.append(replace(RUN, name="fedhaw") if place == "other" else RUN)
        file.close()
    page = LivePage([tmp_path / place for place in ("monday", "tuesday", "other")]).page()
    for name in ("FedAvg, seed 0, monday/a", "FedAvg, seed 0, monday/b", "FedAvg, seed 0, tuesday"):
        assert f">{name}</td>" in page
    assert ">FedHAW, seed 0</td>" in page


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fedhaw", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A suite that runs in the background has been told to ignore Ctrl-C, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.fixture
def server(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    pytest.importorskip("uvicorn")
    process = start("watch", str(tmp_path), "--port", "0")
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
    assert found is not None
    yield process, found[0]
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.system
def test_a_foreign_name_is_refused_and_so_is_a_port_in_use(
    server: "tuple[subprocess.Popen[str], str]", tmp_path: Path
) -> None:
    process, url = server
    with urllib.request.urlopen(url) as answer:
        assert b"Waiting for a history.jsonl" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "evil.example"}))
    second = start("watch", str(tmp_path), "--port", url.rstrip("/").rpartition(":")[2])
    out, said = second.communicate(timeout=60)
    assert (second.returncode, out, len(said.splitlines())) == (2, "", 1)
    assert "cannot be used" in said
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rstrip("/").rpartition(":")[2])))


@pytest.fixture
def online(browser: Any) -> Iterator[Any]:
    """The browser, allowed to ask a server."""
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    change = "Network.emulateNetworkConditions"
    browser.execute_cdp_cmd(change, {"offline": False, **conditions})
    yield browser
    browser.get("about:blank")
    browser.get_log("browser")
    browser.execute_cdp_cmd(change, {"offline": True, **conditions})


@pytest.mark.system
def test_the_curve_of_a_run_grows_and_a_lost_client_is_shown(
    server: "tuple[subprocess.Popen[str], str]", online: Any, tmp_path: Path
) -> None:
    process, url = server
    online.get(url)
    drawn = "return document.getElementById('plot-rounds').plot?.data[0].length ?? 0"
    assert online.execute_script(drawn) == 0
    run = start(
        "run", "--rule", "fedhaw-auto", "--rounds", "100000", "--loss-rate", "0.5",
        "--engine", "sequential", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    try:
        first = until(online, drawn)
        assert until(online, f"const n = ({drawn[7:]}); return n > {first} ? n : 0") > first
        row = "return document.querySelector('#live tbody')?.innerText ?? ''"
        lost = until(
            online, f"const row = (() => {{ {row} }})(); return row.includes('client') && row"
        )
    finally:
        run.kill()
        run.communicate()
    assert re.search(r"of 100000", lost)
    assert re.search(r"round \d+: client \d+ \(uplink\)", lost)
    assert "about" in lost
    weights = "return document.querySelectorAll('#clients-0 .plot canvas').length"
    assert online.execute_script(weights) == 1
    assert online.get_log("browser") == []
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (143, "Ended by SIGTERM.\n")
    until(online, "return document.getElementById('live').dataset.silent")


def until(browser: Any, script: str, seconds: float = 90) -> Any:
    """What a script returns once that is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := browser.execute_script(script):
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s for {script}")

"""How soon a report is built, and how soon its page is there, on a desk and on a phone.

    python benchmarks/report_page.py             # needs chromium and chromedriver
    python benchmarks/report_page.py --save

Two reports on made-up histories: a comparison as `make demo` leaves it (seven rules, five seeds,
40 rounds, ten clients), and one run of 10,000 rounds and 100 clients. Each is built by `fedhaw
report` in a fresh process. Its page is then sent by a plain local server, uncompressed, and opened
in a browser with nothing in its cache: as fast as it goes, and as on a phone, with the processor
slowed down four times and a connection of 9 Mbit/s that answers after 60 ms. Processor time, of the
report's process and of the page's main thread at full speed, is what a busy machine leaves alone.
"""

import argparse
import functools
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from record import Record
from selenium import webdriver

from fedhaw.history import ClientFacts, EndRecord, HistoryFile, Json, RoundRecord, RunRecord

RULES = ("fedavg", "fedadp", "fedhyper", "fedlws", "fedlaw", "fedhaw", "fedhaw-auto")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
)
DESK = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 3, "mobile": True}
FAST_4G = {"latency": 60, "downloadThroughput": 9e6 / 8, "uploadThroughput": 1.5e6 / 8}
UNLIMITED = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


def make_run(folder: Path, rule: str, seed: int, rounds: int, clients: int) -> None:
    """A history as a run leaves it."""
    random = np.random.default_rng([seed, *rule.encode()])
    names = [str(k) for k in range(clients)]
    facts = {name: ClientFacts(100, tuple(random.integers(0, 99, 10).tolist())) for name in names}
    config: dict[str, Json] = {"rounds": rounds, "data": "mnist-5k", "clients": clients}
    with_end = HistoryFile(folder / "history.jsonl")
    with_end.append(RunRecord(rule, {"name": rule}, seed, config=config, clients=facts))
    for t in range(rounds):
        weights = random.dirichlet(np.full(clients, 9.0)).tolist()
        lost = {name: "uplink" for name in names if random.random() < 0.2}
        accuracy = 0.9 * (1 - np.exp(-(t + 1) / 10)) + random.normal(0, 0.01)
        with_end.append(
            RoundRecord(
                t,
                {"accuracy": float(np.clip(accuracy, 0, 1)), "loss": float(2.3 * np.exp(-t / 20))},
                metrics={"gamma": float(random.normal(0, 0.01))},
                weights=dict(zip(names, weights, strict=True)),
                lost=lost,
                seconds={"train": 0.3, "aggregate": 0.001, "evaluate": 0.02},
            )
        )
    with_end.append(EndRecord())
    with_end.close()


def make_runs(folder: Path) -> dict[str, Path]:
    """The runs of both reports, by what they are."""
    for rule in RULES:
        for seed in range(5):
            make_run(folder / "demo" / rule / f"seed-{seed}", rule, seed, 40, 10)
    make_run(folder / "long", "fedhaw", 0, 10_000, 100)
    return {
        "35 runs, 40 rounds, 10 clients": folder / "demo",
        "1 run, 10,000 rounds, 100 clients": folder / "long",
    }


def build(folder: Path) -> tuple[float, float]:
    """Seconds that `fedhaw report` takes, from its start to its end, and of processor time."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fedhaw", "report", str(folder), "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, spent


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, on this machine only."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser with a profile of its own."""
    options = webdriver.ChromeOptions()
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        browser = webdriver.Chrome(options=options, service=service)
        try:
            yield browser
        finally:
            browser.quit()


def opened(browser: Any, url: str, phone: bool) -> tuple[float, float, float]:
    """Seconds until something of a page is seen, until it is loaded, and of processor time."""
    browser.get("about:blank")
    for command, values in (
        ("Network.enable", {}),
        ("Network.clearBrowserCache", {}),
        (
            "Network.emulateNetworkConditions",
            {"offline": False, **(FAST_4G if phone else UNLIMITED)},
        ),
        ("Emulation.setCPUThrottlingRate", {"rate": 4 if phone else 1}),
        ("Emulation.setDeviceMetricsOverride", PHONE if phone else DESK),
    ):
        browser.execute_cdp_cmd(command, values)
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.get(url)
    script = """
        const paint = performance.getEntriesByName('first-contentful-paint')[0];
        const load = performance.getEntriesByType('navigation')[0].loadEventEnd;
        const ready = document.documentElement.dataset.ready;
        return paint && load && ready ? [paint.startTime / 1000, load / 1000] : null;
    """
    while (seconds := browser.execute_script(script)) is None:
        time.sleep(0.05)
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    browser.execute_cdp_cmd("Performance.disable", {})
    (spent,) = (one["value"] for one in metrics if one["name"] == "TaskDuration")
    return seconds[0], seconds[1], spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/report_page.txt"
    )
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Record("report_page", given.save) as record,
        browsing() as browser,
        served(Path(folder)) as address,
    ):
        runs = make_runs(Path(folder))
        rows: list[tuple[str, ...]] = []
        for name, place in runs.items():
            wall, spent = build(place)
            size = (place / "report.html").stat().st_size
            rows.append((name, f"{wall:.1f}", f"{spent:.1f}", f"{size / 1e3:.0f}"))
        record.table("Building a report", ("runs", "s", "processor s", "page, KB"), rows)
        rows = []
        for name, place in runs.items():
            for phone in (False, True):
                url = f"{address}/{place.name}/report.html"
                times = [opened(browser, url, phone) for _ in range(given.repeats)]
                seen, whole, spent = map(statistics.median, zip(*times, strict=True))
                where = f"{'phone' if phone else 'desk'}, {name.partition(',')[0]}"
                rows.append((where, f"{seen:.2f}", f"{whole:.2f}", f"{spent:.2f}"))
        record.table(
            f"Opening its page, {given.repeats} times",
            ("where", "seen after s", "loaded after s", "processor s"),
            rows,
        )


if __name__ == "__main__":
    main()

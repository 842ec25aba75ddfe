"""Histories as a real comparison leaves them, but made up: quick, and the same every time."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhaw.reports import Report
from fedhaw.reports import write_report as write_a_report

# final accuracy, rounds to get there, server seconds
CHARACTERS = {
    "fedavg": (0.832, 16.0, 0.00014),
    "fedadp": (0.836, 15.0, 0.0109),
    "fedhyper": (0.839, 13.0, 0.00026),
    "fedlws": (0.828, 16.0, 0.0192),
    "fedlaw": (0.861, 9.0, 2.31),
    "fedhaw": (0.882, 7.0, 0.00056),
}
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars"
)
CLIENTS = 10
CLASSES = 10


def make_sweep(
    folder: Path,
    rules: tuple[str, ...] = tuple(CHARACTERS),
    seeds: int = 3,
    rounds: int = 60,
    loss_rate: float = 0.5,
) -> Path:
    """One history per rule and seed under `folder`; returns the folder."""
    for rule in rules:
        for seed in range(seeds):
            make_history(folder / rule / f"seed-{seed}", rule, seed, rounds, loss_rate=loss_rate)
    return folder


def make_history(
    folder: Path,
    rule: str = "fedhaw",
    seed: int = 0,
    rounds: int = 60,
    *,
    loss_rate: float = 0.5,
    name: str | None = None,
    config: dict[str, Any] | None = None,
    finished: bool = True,
    **header: Any,
) -> Path:
    lines = records(rule, seed, rounds, loss_rate=loss_rate, name=name, config=config)
    lines[0].update(header)
    if not finished:
        lines.pop()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "history.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def records(
    rule: str,
    seed: int,
    rounds: int,
    *,
    loss_rate: float = 0.5,
    name: str | None = None,
    config: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    split = np.random.default_rng(1)
    labels = split.multinomial(500, split.dirichlet([0.1] * CLIENTS, CLASSES))
    counts = labels.sum(axis=0)
    counts_per_client = np.array(
        [split.multinomial(n, split.dirichlet([0.3] * 10)) for n in counts]
    )
    shares = counts / counts.sum()

    # Every rule of one seed sees the same losses; the rest is its own.
    uplink = np.random.default_rng([7, seed])
    loses = uplink.random((rounds, CLIENTS)) < uplink.random(CLIENTS) * loss_rate
    own = np.random.default_rng([seed, sum(map(ord, rule))])
    final, pace, server = CHARACTERS.get(rule, CHARACTERS["fedavg"])
    final += own.normal(0, 0.004)
    logits, gamma, factors = np.log(shares + 1e-4), 0.0, np.ones(3)
    described: dict[str, Any] = {
        "data": "mnist-5k", "model": "mlp", "alpha": 0.1, "clients": CLIENTS, "rounds": rounds,
        "epochs": 1, "batch": 64, "eta": 0.001, "client_update": "sgd", "loss_rate": loss_rate,
        "seed": seed,
    }  # fmt: skip
    lines: list[dict[str, Any]] = [
        {
            "kind": "run", "format": 1, "fedhaw": "0.1.0", "name": name or rule,
            "rule": {"name": rule, "eta": 0.001} if rule == "fedhaw" else {"name": rule},
            "seed": seed, "config": described | (config or {}),
            "clients": {
                str(k): {"examples": int(row.sum()), "labels": row.tolist()}
                for k, row in enumerate(counts_per_client)
            },
            "parameters": 118282, "started": "2026-01-05T10:00:00Z",
        }
    ]  # fmt: skip
    for t in range(rounds):
        lost = np.flatnonzero(loses[t])
        dip = 0.012 * len(lost) * (0.4 if rule == "fedhaw" else 1.0) * own.random()
        accuracy = 0.1 + (final - 0.1) * (1 - np.exp(-(t + 1) / pace)) - dip + own.normal(0, 0.003)
        weights = shares
        scale: float | list[float] | None = None
        if rule in ("fedhaw", "fedlaw", "fedadp"):
            logits = logits + own.normal(0, 0.03, CLIENTS) + 0.02 * (0.5 - 3 * shares)
            weights = np.exp(logits) / np.exp(logits).sum()
        if rule == "fedhaw":
            gamma += own.normal(0.0006, 0.0004)
            scale = gamma
        elif rule == "fedlaw":
            scale = own.normal(0.08, 0.015)
        elif rule == "fedlws":
            factors = 1 - np.array([0.001, 0.004, 0.01]) * (1 + own.random(3)) / (1 + t / 20)
            scale = factors.tolist()
        elif rule == "fedhyper":
            weights = np.full(CLIENTS, 1 / CLIENTS)
        lines.append(
            {
                "kind": "round", "round": t, "accuracy": float(np.clip(accuracy, 0, 1)),
                "loss": float(2.3 * np.exp(-(t + 1) / pace / 1.5) + 0.4 + own.normal(0, 0.01)),
                "gamma": scale, "weights": {str(k): float(w) for k, w in enumerate(weights)},
                "lost": {str(k): "uplink" for k in lost},
                "client_loss": {str(k): float(0.3 + own.random() / 10) for k in range(CLIENTS)},
                "seconds": {"train": float(0.3 + own.random() / 20),
                            "aggregate": float(server * (1 + own.random() / 5)), "evaluate": 0.02},
                "bytes": {"up": 4 * 118282 * (CLIENTS - len(lost)), "down": 4 * 118282 * CLIENTS},
                "note": None,
            }
        )  # fmt: skip
    lines.append({"kind": "end", "status": "finished", "seconds": 0.35 * rounds})
    return lines


@pytest.fixture
def write_history() -> Callable[..., Path]:
    """Write one made-up history into a folder; see `make_history`."""
    return make_history


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six rules, three seeds, sixty rounds with losses. Read only."""
    return make_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="session")
def report(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report on the sweep. Read only."""
    return write_a_report(
        [sweep], tmp_path_factory.mktemp("report"), notice="Reduced scale: 5,000 images."
    )


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium that cannot reach any network."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    for program in (CHROMIUM, DRIVER):
        if not Path(program).exists():
            pytest.skip(f"needs {program}: apt-get install chromium chromium-driver")
    # Selenium would otherwise look for a driver on the network.
    os.environ["SE_OFFLINE"] = "true"
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    # No request may leave the page; one that tried would fail and be logged.
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield driver
    driver.quit()

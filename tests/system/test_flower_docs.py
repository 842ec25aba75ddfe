"""Every command of docs/flower.md, run as it is printed but for addresses and folders."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.slow]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs" / "flower.md").read_text()
PROGRAMS = (
    "export|flower-superlink|flower-supernode|cd|flwr|fedhaw report|openssl|echo|ssh-keygen|pip"
)
RUN_HERE = {"A ready app", "In Flower's own simulation", "A deployment with TLS and authentication"}


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


flower = _loaded("flower_processes")


def sections() -> dict[str, str]:
    """The page's parts by their headings."""
    parts = re.split(r"^##+ (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(section: str) -> list[str]:
    """The indented commands of a part, continued lines put together."""
    lines = sections()[section].replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(rf"    ({PROGRAMS}) ", line)]


class Terminal:
    """Where commands are typed: some go on in the background until it is closed."""

    def __init__(self, folder: Path, changes: dict[str, str]) -> None:
        self.folder, self.changes, self.cwd = folder, changes, ROOT
        self.background: list[subprocess.Popen[bytes]] = []
        (folder / ".flwr").mkdir()
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def changed(self, text: str) -> str:
        for old, new in self.changes.items():
            text = text.replace(old, new)
        return text

    def configure(self, name: str) -> None:
        """The connection to a SuperLink, as the page writes it."""
        found = re.search(rf"( +\[superlink\.{name}\]\n(    .*\n)+)", PAGE)
        assert found is not None
        text = self.changed(found[1].replace("\n    ", "\n").strip())
        (self.folder / ".flwr" / "config.toml").write_text(text + "\n")

    def type(self, command: str) -> None:
        command = self.changed(command)
        word = command.split()[0]
        if word == "export":
            name, _, value = command.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif word == "cd":
            self.cwd = ROOT / command.removeprefix("cd ")
        elif word in ("flower-superlink", "flower-supernode"):
            with (self.folder / f"{word}-{len(self.background)}.log").open("wb") as log:
                started = subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], env=self.environment, cwd=self.cwd,
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
            self.background.append(started)
            if word == "flower-superlink":
                port = int(command.split("--port ")[1].split()[0])
                flower.wait_for(lambda: flower.Deployment.answers(port), "the SuperLink", 120)
        else:
            done = subprocess.run(
                ["bash", "-c", command], env=self.environment, cwd=self.cwd,
                capture_output=True, text=True, timeout=600,
            )  # fmt: skip
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def close(self) -> None:
        for process in self.background:
            for pid in [process.pid, *flower.descendants(process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    ports = {old: str(flower.free_port()) for old in ("18000", "19000", "19001", "19002")}
    folders = {"/tmp/field-trial": str(tmp_path / "out"), "/var/lib/trial": str(tmp_path / "out")}
    hosts = {
        "DNS:fl.example.org, IP:192.0.2.10": "IP:127.0.0.1",
        "fl.example.org": "127.0.0.1",
        "--host 0.0.0.0": "--host 127.0.0.1",
        "/path/to/ca.crt": str(tmp_path / "ca.crt"),
    }
    made = Terminal(tmp_path, ports | folders | hosts)
    try:
        yield made
    finally:
        made.close()


def test_every_command_is_run_by_a_test() -> None:
    elsewhere = [c for name in sections() if name not in RUN_HERE for c in commands(name)]
    assert all(command.startswith("pip install") for command in elsewhere)
    assert sum(len(commands(name)) for name in RUN_HERE) == 21


def test_the_ready_app(terminal: Terminal, tmp_path: Path) -> None:
    terminal.configure("loopback")
    for command in commands("A ready app"):
        terminal.type(command)
    assert len([r for r in flower.records(tmp_path / "out") if r["kind"] == "round"]) == 5


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs flwr[simulation]")
def test_flowers_own_simulation(terminal: Terminal, tmp_path: Path) -> None:
    terminal.configure("loopback")
    terminal.cwd = ROOT / "examples" / "flower"
    for command in commands("In Flower's own simulation"):
        if not command.startswith("pip"):
            terminal.type(command.replace("--stream", f"--stream -c 'out=\"{tmp_path}/out\"'"))
    assert flower.finished(tmp_path / "out")


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make certificates")
def test_tls_and_authentication(terminal: Terminal, tmp_path: Path) -> None:
    """The page shows what to type on the first of several clients' machines."""
    terminal.configure("field")
    terminal.cwd = tmp_path
    for command in commands("A deployment with TLS and authentication"):
        of_one_client = command.startswith(("ssh-keygen", "flower-supernode"))
        if command.startswith("flwr run"):
            terminal.cwd = ROOT / "examples" / "flower"
            command = command.replace("registered-only=true", "registered-only=true clients=2")
        for k in range(2 if of_one_client else 1):
            for_k = command.replace("client-0", f"client-{k}").replace("id=0", f"id={k}")
            port = f" --port {flower.free_port()}" if "supernode --superlink" in for_k else ""
            terminal.type(for_k + port)
    assert flower.finished(tmp_path / "out")

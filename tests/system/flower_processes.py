"""SuperLink, SuperNodes and runs on loopback, started and stopped by a test.

Loaded by path from the tests beside it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
OWN_PORT = tuple(map(int, version("flwr").split(".")[:2])) < (1, 40)
"""Whether SuperNodes connect to a port of their own, as they did before Flower 1.40."""
APP = Path(__file__).parent / "flower_app"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """A SuperLink and its SuperNodes, each with a log file in `folder`."""

    def __init__(self, folder: Path, *, tls: Path | None = None) -> None:
        self.folder, self.tls = folder, tls
        self.port = free_port()
        self.nodes_port = free_port() if OWN_PORT else self.port
        self.federation = ""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        home = folder / "home"
        home.mkdir(exist_ok=True)
        trust = f'root-certificates = "{tls / "ca.crt"}"' if tls else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink.loopback]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def start_link(self, *options: str) -> None:
        security = ["--insecure"]
        if self.tls is not None:
            names = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
            security = [
                part for n, f in names.items() for part in (f"--ssl-{n}", f"{self.tls / f}")
            ]
        self.start(
            "link", "flower-superlink", *security, "--host", "127.0.0.1", "--port", str(self.port),
            "--disable-runtime-dependency-installation", *options,
            *(["--fleet-api-address", f"127.0.0.1:{self.nodes_port}"] if OWN_PORT else []),
        )  # fmt: skip
        wait_for(lambda: self.answers(self.port), "the SuperLink to listen", 60)

    def start_node(self, k: int, *options: str) -> None:
        trust = ["--root-certificates", str(self.tls / "ca.crt")] if self.tls else ["--insecure"]
        self.start(
            f"node{k}", "flower-supernode", *trust, "--superlink", f"127.0.0.1:{self.nodes_port}",
            "--port", str(free_port()), "--node-config", f"partition-id={k}", *options,
        )  # fmt: skip

    def flwr(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "flwr"), *command],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def run(self, app: Path, **config: object) -> str:
        """Start a run; returns its number."""
        settings = " ".join(f"{key.replace('_', '-')}={_toml(v)}" for key, v in config.items())
        nodes = ["--federation-config", self.federation] if self.federation else []
        done = self.flwr("run", str(app), "loopback", "-c", settings, "--format", "json", *nodes)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["run-id"])

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    @staticmethod
    def answers(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill a process; with SIGKILL, everything it has started as well."""
        process = self.processes.pop(name)
        family = [process.pid]
        if how == signal.SIGKILL:
            family += descendants(process.pid)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        process.wait(30)

    def wait_for(self, condition: Callable[[], Any], what: str, timeout: float) -> Any:
        """Wait until the condition holds; if it never does, show what everybody said last."""
        try:
            return wait_for(condition, what, timeout)
        except AssertionError:
            for file in sorted(self.folder.glob("*.log")):
                print(f"--- {file.name}", *self.log(file.stem).splitlines()[-25:], sep="\n")
            raise

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@contextlib.contextmanager
def deployment(folder: Path, tls: Path | None = None) -> Iterator[Deployment]:
    """A deployment that is gone afterwards, whatever happens."""
    made = Deployment(folder, tls=tls)
    try:
        yield made
    finally:
        made.stop()


def copy_app(app: Path, folder: Path) -> None:
    shutil.copytree(app, folder, ignore=shutil.ignore_patterns("__pycache__"))


def descendants(pid: int) -> list[int]:
    """Everybody a process has started, directly or not, whatever session they are in."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
    found: list[int] = []
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += frontier
    return found


def wait_for(condition: Callable[[], Any], what: str, timeout: float) -> Any:
    """Wait until the condition holds; its value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {timeout:g} s for {what}"
        time.sleep(0.2)
    return value


def records(out: Path) -> list[dict[str, Any]]:
    """What the history in `out` holds so far."""
    file = out / "history.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")]


def finished(out: Path) -> bool:
    return any(record["kind"] == "end" for record in records(out))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    text = value if isinstance(value, (str, Path)) else json.dumps(value)
    return f"'{text}'"

"""TLS and SuperNode authentication: strangers stay out, and who returns is who it was."""

import importlib.util
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="needs openssl and ssh-keygen to make certificates and keys",
    ),
]

HERE = Path(__file__).parent


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


flower = _loaded("flower_processes")


def make_certificates(folder: Path) -> None:
    """A certificate authority of our own, and the SuperLink's certificate, as in docs/flower.md."""
    folder.mkdir()
    (folder / "server.ext").write_text("subjectAltName = IP:127.0.0.1, DNS:localhost\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 7 -keyout ca.key -out ca.crt -subj /CN=test-ca",
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=superlink",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 7 "
        "-extfile server.ext -out server.crt",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def make_key(folder: Path, name: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(folder / name)]
    subprocess.run(command, check=True)
    return folder / name


def node_id(log: str) -> str:
    return str(re.findall(r"SuperNode ID: (\d+)", log)[-1])


def test_strangers_are_refused_and_a_registered_node_comes_back_as_itself(tmp_path: Path) -> None:
    certificates, out = tmp_path / "tls", tmp_path / "out"
    make_certificates(certificates)
    keys = [make_key(certificates, f"node{k}") for k in range(3)]
    with flower.deployment(tmp_path / "flower", certificates) as made:
        made.start_link("--enable-supernode-auth", "--database", str(tmp_path / "state.db"))
        for k in (0, 1):
            public = str(keys[k].with_suffix(".pub"))
            done = made.flwr("supernode", "register", public, "loopback", "--name", f"client-{k}")
            assert done.returncode == 0, done.stdout + done.stderr
            made.start_node(k, "--auth-supernode-private-key", str(keys[k]))
        made.start_node(2, "--auth-supernode-private-key", str(keys[2]))  # never registered
        stranger = made.processes["node2"]
        made.wait_for(lambda: stranger.poll() is not None, "the stranger to be refused", 60)
        assert stranger.returncode != 0

        made.run(flower.APP, rounds=1, clients=2, bound=True, out=out)
        made.wait_for(lambda: flower.finished(out), "the first round", 90)

        before = node_id(made.log("node1"))
        made.kill("node1", signal.SIGTERM)
        made.start_node(1, "--auth-supernode-private-key", str(keys[1]))
        made.wait_for(
            lambda: made.log("node1").count("SuperNode ID") == 2, "node 1 to come back", 90
        )
        assert node_id(made.log("node1")) == before

        made.run(flower.APP, rounds=2, clients=2, bound=True, out=out)
        made.wait_for(
            lambda: [r["kind"] for r in flower.records(out)].count("round") == 2,
            "the second round",
            90,
        )

    rounds = [record for record in flower.records(out) if record["kind"] == "round"]
    assert [sorted(record["weights"]) for record in rounds] == [["0", "1"]] * 2
    assert [record["lost"] for record in rounds] == [{}, {}]
    assert np.isfinite(load_file(out / "checkpoint.safetensors")["model"]).all()

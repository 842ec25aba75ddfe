"""The files that make a service of a federation: what they say exists, here and in Flower.

A supervised run whose server is killed is tried in tests/system/test_flower_deployment.py.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from flwr.superlink.cli import flower_superlink
from flwr.supernode.cli import flower_supernode

APP = Path(__file__).parents[2] / "examples" / "flower"
UNITS = sorted((APP / "service").glob("*.service"))
COMPOSE = yaml.safe_load((APP / "service" / "compose.yaml").read_text(encoding="utf-8"))


def commands(program: str) -> list[list[str]]:
    """The arguments of every command of the units and of the compose file that runs `program`."""
    written = [
        re.sub(r"\\\n", " ", line)
        for unit in UNITS
        for line in re.findall(r"^ExecStart=((?:.*\\\n)*.*)", unit.read_text(), re.MULTILINE)
    ] + [service["command"] for service in COMPOSE["services"].values()]
    split = [shlex.split(command) for command in written]
    return [arguments for path, *arguments in split if Path(path).name == program]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_has_nothing_to_say_about_the_units(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "flower-superlink", "flower-supernode"):
        shutil.copy(shutil.which("true") or "", programs / name)
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text().replace("/opt/fedhaw/bin/", f"{programs}/"))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, copies)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("program", "main", "count"),
    [("flower-superlink", flower_superlink, 2), ("flower-supernode", flower_supernode, 4)],
)
def test_flower_knows_every_option(
    program: str,
    main: object,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    assert callable(main)
    with pytest.raises(SystemExit):
        main()
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    used = [{word for word in line if word.startswith("--")} for line in commands(program)]
    assert len(used) == count
    assert all(options <= known for options in used), used


def test_the_supervisor_is_there_and_knows_its_superlink() -> None:
    home = COMPOSE["x-fedhaw"]["environment"]["FLWR_HOME"].replace("/app", str(APP))
    links = tomllib.loads((Path(home) / "config.toml").read_text())["superlink"]
    assert len(commands("python")) == 2
    for script, folder, link, *_ in commands("python"):
        assert (APP / script).is_file()
        assert folder == "."
        assert link in {"field", *links}
    port = links["compose"]["address"].partition(":")[2]
    assert ["--port", port] == [w for w in commands("flower-superlink")[1] if w in ("--port", port)]

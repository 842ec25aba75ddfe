"""What the package imports is what it asks pip for, not what something else happened to bring."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def imported() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"fedhaw"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in extras for line in extras[name])]
    ends = str.maketrans(dict.fromkeys("[<>=!~; ", " "))
    return {plain(line.translate(ends).split()[0]) for line in wanted}


def test_every_import_is_declared() -> None:
    distributions = packages_distributions()
    missing = {
        name
        for name in imported()
        if not {plain(dist) for dist in distributions.get(name, [name])} & declared()
    }
    assert not missing


@pytest.mark.parametrize(
    ("missing", "command"), [("typer", ["rules"]), ("click", ["--help"]), ("torch", ["compare"])]
)
def test_a_command_line_without_its_extra_says_what_to_install(
    missing: str, command: list[str], tmp_path: Path
) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None; import fedhaw.cli as c; c.main({command})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr == f"The command line needs {missing}; run: pip install 'fedhaw[sim]'.\n"
    assert not list(tmp_path.iterdir())

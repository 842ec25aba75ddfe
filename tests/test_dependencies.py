"""What the package imports is what it asks pip for, not what something else happened to bring."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

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

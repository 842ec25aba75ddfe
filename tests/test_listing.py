"""What the files of fedhaw list: one line in a file is all that a new thing takes."""

import shutil
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import fedhaw
from fedhaw import listing
from fedhaw.listing import Listing, listed

PACKAGES = ("rules", "clients", "models", "uplink", "simulation.engines", "data")

PROGRAM = """
import sys
import fedhaw
from fedhaw.cli import main
from fedhaw.settings import SETTINGS

assert "torch" not in sys.modules
for name, thing in {"data": "squares", "model": "tiny", "client_update": "hurried",
                    "uplink": "fickle", "engine": "careful"}.items():
    assert thing in SETTINGS[name].help, name
assert thing in SETTINGS["engine"].choices
assert fedhaw.Newest().init() is not None
assert "Newest" in fedhaw.__all__
main("run --data squares --model tiny --client-update hurried+adam --uplink fickle --clients 2 "
     "--split iid --engine careful --rule newest --rounds 2 --seed 3 --out out --json".split())
"""

FILES = {
    "rules/newest.py": """
        from dataclasses import dataclass
        from fedhaw.listing import listed
        from fedhaw.rules.fedavg import FedAvg

        @listed(__name__, "newest", "Newest of all")
        @dataclass(frozen=True)
        class Newest(FedAvg):
            "A rule."
        """,
    "clients/hurried.py": """
        from dataclasses import replace
        from fedhaw.clients.update import LocalUpdate
        from fedhaw.listing import listed

        @listed(__name__, "hurried")
        def hurried(steps: LocalUpdate) -> LocalUpdate:
            return replace(steps, eta=steps.eta * 2)
        """,
    "models/tiny.py": """
        from math import prod
        from torch import nn
        from fedhaw.listing import listed

        @listed(__name__, "tiny")
        def tiny(input_shape, classes):
            return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes))
        """,
    "uplink/fickle.py": """
        import numpy as np
        from fedhaw.listing import listed

        @listed(__name__, "fickle", "client 1 in every other round")
        class Fickle:
            def lost(self, seed, round_index, clients):
                return np.array([client == 1 and round_index % 2 for client in clients], dtype=bool)
        """,
    "simulation/engines/careful.py": """
        from fedhaw.listing import listed
        from fedhaw.simulation.engines.sequential import SequentialEngine

        @listed(__name__, "careful", "as sequential")
        class CarefulEngine(SequentialEngine):
            pass
        """,
    "data/squares.py": """
        import numpy as np
        from fedhaw.data.dataset import from_table
        from fedhaw.listing import listed

        @listed(__name__, "squares", "of grey")
        def squares():
            y = np.arange(300) % 2
            x = np.random.RandomState(0).normal(y[:, None, None], 0.3, (300, 4, 4))
            return from_table(x.astype(np.float32), y, "squares")
        """,
}


def test_one_file_is_all_that_a_new_thing_takes(tmp_path: Path) -> None:
    """A copy of fedhaw with one more file of each kind, and not a letter changed elsewhere."""
    shutil.copytree(Path(fedhaw.__file__).parent, tmp_path / "fedhaw")
    for place, content in FILES.items():
        (tmp_path / "fedhaw" / place).write_text(textwrap.dedent(content))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    history = fedhaw.History.read(tmp_path / "out")
    assert history.run.rule["name"] == "newest"
    assert sum(history.lost) == 1
    assert history.accuracy[-1] > 0.5


@pytest.mark.parametrize("package", PACKAGES)
def test_the_text_of_the_files_says_what_they_declare(package: str) -> None:
    found: Listing[object] = Listing(package)
    module = import_module(f"fedhaw.{package}")
    for file in iter_modules(module.__path__, f"fedhaw.{package}."):
        import_module(file.name)
    declared = {
        name for of, name in listing._THINGS if of.rpartition(".")[0] == f"fedhaw.{package}"
    }
    assert set(found) == declared
    assert list(found) == sorted(declared)
    assert all(found[name] is not None for name in found)


def test_a_declaration_leaves_a_thing_as_it_is() -> None:
    thing = object()
    assert listed("somewhere", "a name")(thing) is thing


def test_an_unlisted_name_is_not_there() -> None:
    found: Listing[object] = Listing("uplink")
    assert "nothing" not in found
    with pytest.raises(KeyError):
        found["nothing"]
    assert "letter (independently)" in found.in_words()

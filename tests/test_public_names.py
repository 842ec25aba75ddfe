"""What `import fedhaw` offers, with torch and without."""

import subprocess
import sys

import fedhaw

WITHOUT_TORCH = """
import importlib.machinery, sys

class NoTorch(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return None

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.meta_path.insert(0, NoTorch)

import fedhaw
from fedhaw import *

assert not hasattr(fedhaw, "simulate")
assert "simulate" not in dir(fedhaw)
assert FedAvg is fedhaw.FedAvg and History and LetterUplink
assert "torch" not in sys.modules
try:
    fedhaw.simulate
except fedhaw.FedhawError as error:
    print(error)
"""


def test_every_public_name_is_there() -> None:
    assert all(hasattr(fedhaw, name) for name in fedhaw.__all__)
    assert set(fedhaw.__all__) >= {"simulate", "FedHAW", "History", "LocalUpdate", "LetterUplink"}


def test_without_torch_the_rest_works_and_one_sentence_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout == (
        "fedhaw.simulate needs torch, which is not installed; run: pip install 'fedhaw[sim]'.\n"
    )

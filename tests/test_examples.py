"""Every program in examples/ is short, and does what its first lines say."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

# What a program ends with, at least: accuracies are those of one seed, with room below them.
LEAST_ACCURACY = {
    "own_rule": 0.3,
    "own_data": 0.85,
    "own_module": 0.6,
    "own_uplink": 0.3,
    "scikit_learn": 0.8,
    "lora_text_classifier": 0.8,
    "own_client": 0.3,
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if path.stem != "flower_one_line"],
    ids=lambda path: path.stem,
)
def test_it_learns(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    accuracies = re.findall(r"accuracy (\d\.\d+)", capsys.readouterr().out)
    assert accuracies
    assert all(float(accuracy) > LEAST_ACCURACY[path.stem] for accuracy in accuracies)


def test_flower_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    app = runpy.run_path(str(ROOT / "examples" / "flower_one_line.py"))
    started: list[Any] = []

    def start(strategy: Any, grid: object, initial_arrays: ArrayRecord, num_rounds: int) -> object:
        started.append((strategy, num_rounds))
        return SimpleNamespace(arrays=initial_arrays)

    monkeypatch.setattr(app["RuleStrategy"], "start", start)
    app["main"](None, None)
    ((strategy, rounds),) = started
    assert isinstance(strategy, app["RuleStrategy"])
    assert rounds == 3


def test_what_is_frozen_is_not_touched() -> None:
    """Of the text classifier only adapters and head are in the vector that a rule sees."""
    from fedhaw.models import Layout

    example = runpy.run_path(str(ROOT / "examples" / "lora_text_classifier.py"))
    names = [entry.name for entry in Layout.of(example["TextNet"]()).entries]
    assert names
    assert all(re.search(r"\.(query|value)\.[AB]$|\.classifier\.", name) for name in names)
    assert not any("LayerNorm" in name or "embeddings" in name for name in names)


def test_updates_of_one_length() -> None:
    """Two clients, one of which went ten times as far, count alike."""
    import fedhaw

    rule = runpy.run_path(str(ROOT / "examples" / "own_rule.py"))["EqualVoice"]()
    W = np.array([[10.0, 0.0], [0.0, 1.0]])
    model, state = rule.aggregate(rule.init(), fedhaw.Round(np.zeros(2), W, [1, 1]))
    np.testing.assert_allclose(model, [2.75, 2.75])
    assert state.metrics == {"median length": 5.5}

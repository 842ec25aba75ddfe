"""Commands that work: what they print and write."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedhaw.checkpoints import Part, read, write
from fedhaw.models.perceptron import mlp
from fedhaw.rules.registry import RULES

Call = Callable[..., Any]


def test_compare_prints_one_json_object_and_writes_a_report(call: Call, tmp_path: Path) -> None:
    flags = ["--rules", "fedavg,fedhaw", "--rounds", "3", "--seeds", "2", "--loss-rate", "0.5"]
    ended = call("compare", *flags, "--out", "out", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert list(found["rules"]) == ["fedavg", "fedhaw"]
    for rule in found["rules"].values():
        assert 0 <= rule["accuracy"]["mean"] <= 1
        assert rule["accuracy"]["std"] >= 0
        assert len(rule["accuracy_per_round"]) == 3
        assert rule["accuracy_per_round"][-1] == pytest.approx(rule["accuracy"]["mean"])
        assert set(rule["seconds_per_round"]) == {"train", "aggregate"}
        assert rule["lost_uploads"] > 0
    lost = {rule["lost_uploads"] for rule in found["rules"].values()}
    assert len(lost) == 1, "all rules of a comparison see the same losses"
    assert found["settings"]["loss_rate"] == 0.5
    assert found["settings"]["seeds"] == [0, 1]
    for name in ("report.html", "table.md", "table.csv", "table.tex", "figures/accuracy.png"):
        assert (tmp_path / "out" / name).stat().st_size > 0


def test_compare_goes_on_with_more_rules_and_seeds(call: Call, tmp_path: Path) -> None:
    small = ["compare", "--rounds", "2", "--out", "out"]
    assert call(*small, "--rules", "fedavg", "--seeds", "1").code == 0
    history = tmp_path / "out/runs/fedavg/seed-0/history.jsonl"
    before = history.stat().st_mtime_ns, history.read_bytes()
    ended = call(*small, "--rules", "fedavg,fedhyper", "--seeds", "2")
    assert ended.code == 0
    assert "1 runs had finished before" in ended.err
    assert (history.stat().st_mtime_ns, history.read_bytes()) == before
    assert "FedHyper" in ended.out
    assert "report.html" in ended.out


def test_the_model_of_a_run_is_exported_by_its_folder(call: Call, tmp_path: Path) -> None:
    small = ["--train-samples", "200", "--clients", "2", "--alpha", "1", "--checkpoint-every", "1"]
    assert call("run", "--rounds", "2", "--out", "trial", *small).code == 0
    ended = call("export", "trial", "model.safetensors")
    assert (ended.code, ended.err) == (0, "")
    module = mlp((784, 128, 128, 10))
    module.load_state_dict(load_file(tmp_path / "model.safetensors"))
    newest = read(sorted((tmp_path / "trial" / "checkpoints").iterdir())[-1])
    vector = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    np.testing.assert_array_equal(vector, newest["model"].arrays[""])
    assert call("export", "trial", "trial/model.safetensors").code == 0
    assert call("export", "trial", "trial/model.safetensors").code == 0, "over an earlier one"


@pytest.mark.parametrize("simulated", [True, False])
def test_an_export_never_overwrites_what_its_run_needs(
    call: Call, tmp_path: Path, simulated: bool
) -> None:
    among = tmp_path / "checkpoints" if simulated else tmp_path
    checkpoint = among / ("round-000002.safetensors" if simulated else "checkpoint.safetensors")
    facts = {"arrays": [["w", "float32", "(2,)"]]}
    write(checkpoint, {"model": Part({"": np.zeros(2, np.float32)}, facts)})
    older = among / "round-000001.safetensors"
    own = [older, checkpoint, tmp_path / "history.jsonl", tmp_path / "recipe.json"]
    for file in own:
        file.touch()
        before = file.read_bytes()
        ended = call("export", str(tmp_path), str(file.relative_to(tmp_path)))
        assert (ended.code, ended.out) == (2, "")
        assert f"{file.name} is a place for the run's own files" in ended.err
        assert file.read_bytes() == before


def test_an_export_onto_a_full_disk_is_told_in_one_sentence(call: Call, tmp_path: Path) -> None:
    facts = {"arrays": [["w", "float32", "(100000,)"]]}
    write(tmp_path / "c", {"model": Part({"": np.zeros(100_000, np.float32)}, facts)})
    resource = pytest.importorskip("resource", reason="Windows limits no files")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        ended = call("export", "c", "model.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (ended.code, ended.out) == (2, "")
    assert "Could not write model.safetensors: File too large; free some space" in ended.err
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def test_the_command_for_the_report_can_be_pasted(call: Call) -> None:
    ended = call("run", "--rule", "fedavg", "--rounds", "1", "--out", "r a ü")
    assert ended.out.endswith("report   run: fedhaw report 'r a ü'\n")


def test_run_takes_a_recipe_and_flags_go_before_it(call: Call, tmp_path: Path) -> None:
    text = 'rounds = 9\nalpha = 0.5\n[rule]\nname = "fedlws"\n[rule.options]\nbeta = 0.2\n'
    (tmp_path / "r.toml").write_text(text)
    assert tomllib.loads(text)["rounds"] == 9
    ended = call("run", "r.toml", "--rounds", "2", "--rule-option", "clip=[0.01,0.2]", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert len(found["rules"]["fedlws"]["accuracy_per_round"]) == 2
    settings = found["settings"]
    assert settings["alpha"] == 0.5
    assert settings["rule"]["options"] == {"beta": 0.2, "clip": [0.01, 0.2]}


def test_a_finished_run_goes_on_for_more_rounds(call: Call, tmp_path: Path) -> None:
    run = ["run", "--rule", "fedhaw", "--json", "--out"]
    short = json.loads(call(*run, "grown", "--rounds", "2").out)
    grown = json.loads(call(*run, "grown", "--rounds", "4").out)
    whole = json.loads(call(*run, "whole", "--rounds", "4").out)
    accuracies = [found["rules"]["fedhaw"]["accuracy_per_round"] for found in (short, grown, whole)]
    assert accuracies[0] == accuracies[1][:2]
    assert accuracies[1] == accuracies[2]


def test_report_is_rebuilt_from_histories(call: Call, tmp_path: Path) -> None:
    call("run", "--rule", "fedavg", "--rounds", "2", "--out", "runs/a")
    ended = call("report", "runs", "--out", "rebuilt", "--notice", "Only a test.", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["report"] == "rebuilt/report.html"
    assert "Only a test." in (tmp_path / "rebuilt" / "table.md").read_text()


def test_tensorboard_files_are_written_on_request(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    ended = call("run", "--rule", "fedavg", "--rounds", "2", "--out", "out", "--tensorboard")
    assert ended.code == 0
    assert list((tmp_path / "out" / "tensorboard").rglob("events.out.tfevents.*"))


def test_rules_lists_every_rule(call: Call) -> None:
    found = json.loads(call("rules", "--json").out)["rules"]
    assert list(found) == list(RULES)
    assert found["fedadp"]["options"]["alpha"]["default"] == 5.0
    assert "line 12" in call("rules", "fedhaw").out


def test_data_can_be_split_drawn_and_used(call: Call, tmp_path: Path) -> None:
    ended = call("data", "split", "mnist-5k", "--clients", "4", "--out", "s.npz")
    assert ended.code == 0
    with np.load(tmp_path / "s.npz", allow_pickle=False) as parts:
        assert len(parts["offsets"]) == 5
    assert call("data", "draw", "mnist-5k", "--out", "holdings.png").code == 0
    assert (tmp_path / "holdings.png").read_bytes().startswith(b"\x89PNG")
    used = call("run", "--split", "s.npz", "--clients", "4", "--rounds", "1", "--rule", "fedavg")
    assert used.code == 0
    assert "4,000 training" in call("data", "check", "mnist-5k").out


@pytest.mark.parametrize("command", ["compare", "reproduce", "run", "report", "rules"])
def test_help_has_examples(call: Call, command: str) -> None:
    ended = call(command, "--help")
    assert ended.code == 0
    assert f"fedhaw {command}" in ended.out.partition("Examples")[2]


def test_version(call: Call) -> None:
    from fedhaw import __version__

    assert call("--version").out == f"fedhaw {__version__}\n"

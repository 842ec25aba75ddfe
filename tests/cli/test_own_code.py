"""A stranger's rule, client update, data and model, named by their files, from an empty folder."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedhaw.experiments.catalogue import check_options
from fedhaw.rules.registry import UnknownRule, find

Call = Callable[..., Any]

RULE = '''\
"""MyRule: FedAvg with a longer step, server-side."""

from dataclasses import dataclass

import numpy as np

from helper_beside import SHORTEST
from fedhaw.rules.base import Round


@dataclass(frozen=True)
class MyState:
    clients: tuple = ()
    weights: np.ndarray = ()
    beta: float = 0.0

    @property
    def metrics(self):
        return {"my-number": self.beta}


@dataclass(frozen=True)
class MyRule:
    eta: float
    beta: float = 1.0

    def __post_init__(self):
        if self.beta < SHORTEST:
            raise ValueError("beta is too small")

    def init(self):
        return MyState()

    def aggregate(self, state, current: Round):
        w, W, p = current.global_model, current.client_models, current.shares
        mean = sum(float(share) * row for share, row in zip(p, W))
        return w + self.beta * (mean - w), MyState(current.clients, p, self.beta * self.eta)


NOT_A_RULE = 3
'''

OWN = """\
import numpy as np
import torch
from fedhaw import LocalUpdate
from fedhaw.data import from_arrays

LOCAL = LocalUpdate(weight_decay=0.5)


class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = torch.nn.Linear(5, classes)

    def forward(self, x):
        return self.last(x.flatten(1))


def train(module, x, y, generator, eta):
    loss = torch.nn.functional.cross_entropy(module(x), y)
    loss.backward()
    with torch.no_grad():
        for p in module.parameters():
            p -= eta * p.grad
    return float(loss.detach())


def data():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(80, 5)).astype(np.float32), np.arange(80) % 4
    return from_arrays(x, y, x[:40], y[:40], name="own")
"""

LEAVE = "__import__('sys').exit('bye')"

SMALL = ["--clients", "3", "--rounds", "2", "--engine", "sequential"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a rule in it; what is imported there does not stay."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "helper_beside", raising=False)
    (tmp_path / "my_rule.py").write_text(RULE)
    (tmp_path / "helper_beside.py").write_text("SHORTEST = 0.1\n")
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def _lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def test_a_strangers_rule_is_compared_resumed_and_reported(call: Call, folder: Path) -> None:
    flags = ["--seeds", "1", "--out", "out", "--rule-option", "myrule.beta=0.5", *SMALL]
    command = ["compare", "--rules", "fedavg,./my_rule.py:MyRule", *flags]
    ended = call(*command, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert list(found["rules"]) == ["fedavg", "myrule"]
    assert found["settings"]["rules"]["my_rule.py:MyRule"] == {"beta": 0.5}
    run = folder / "out/runs/my_rule-myrule/seed-0"
    header = _lines(run)[0]
    assert header["rule"] == {"name": "myrule", "eta": 0.01, "beta": 0.5}

    before = (run / "history.jsonl").stat().st_mtime_ns
    again = call(*command)
    assert "MyRule" in again.out, "its title is the class's name"
    assert (run / "history.jsonl").stat().st_mtime_ns == before, (
        "it had finished and is not run again"
    )
    assert call("report", "out").code == 0

    other = call(*[flag.replace("beta=0.5", "beta=0.7") for flag in command])
    assert other.code == 2
    assert "holds a run with rule.options.beta = 0.5, not 0.7" in other.err
    changed = folder / "my_rule.py"
    changed.write_text(RULE.replace("mean - w", "w - mean"))
    other = call(*command)
    assert other.code == 2
    assert "holds a run with source.my_rule.py:MyRule" in other.err
    changed.rename(folder / "renamed.py")
    other = call("run", "--rule", "renamed.py:MyRule", *SMALL, "--seed", "0", "--out", str(run))
    assert other.code == 2
    assert "'my_rule.py:MyRule', not 'renamed.py:MyRule'" in other.err


def test_a_strangers_rule_runs_and_goes_on(call: Call, folder: Path) -> None:
    command = ["run", "--rule", "my_rule.py:MyRule", "--rule-option", "beta=0.5", *SMALL, "--json"]
    assert call(*command, "--out", "a").code == 0
    longer = [*command, "--rounds", "4"]
    assert call(*longer, "--out", "a").code == 0
    assert call(*longer, "--out", "b").code == 0
    one, other = (
        [line["evaluation"] for line in _lines(folder / name) if line["kind"] == "round"]
        for name in ("a", "b")
    )
    assert len(one) == 4
    assert one == other

    shown = call("rules", "my_rule.py:MyRule")
    assert "FedAvg with a longer step" in shown.out
    listed = json.loads(call("rules", "my_rule.py:MyRule", "--json").out)["rules"]
    assert list(listed["my_rule.py:MyRule"]["options"]) == ["beta"], "eta is the federation's"


def test_a_strangers_rule_stands_beside_the_letters(
    call: Call, folder: Path, data_sets: Path
) -> None:
    command = ["reproduce", "fedprox", "--data", "mnist", "--scale", "tiny"]
    command += [
        "--data-dir",
        str(data_sets),
        "--seeds",
        "1",
        "--rules",
        "my_rule.py:MyRule,fedavg",
        "--out",
        "out",
        "--json",
    ]
    ended = call(*command)
    assert ended.code == 0, ended.err
    (table,) = json.loads(ended.out)["tables"]
    cells = {cell["row"]: cell for cell in table["cells"]}
    assert list(cells) == ["FedProx", "FedProx+MyRule"]
    assert cells["FedProx+MyRule"]["letter"] is None
    assert cells["FedProx+MyRule"]["seeds"] == 1
    assert (folder / "out/runs/mnist-tiny/alpha0.1-pe0.5-fedprox/my_rule-myrule/seed-0").is_dir()


def test_rules_of_one_name_in_two_files_are_told_apart(call: Call, folder: Path) -> None:
    (folder / "v2.py").write_text(RULE.replace("beta: float = 1.0", "beta: float = 0.9"))
    rules = "my_rule.py:MyRule,v2.py:MyRule"
    command = ["compare", "--rules", rules, "--seeds", "1", "--out", "out", *SMALL, "--json"]
    ended = call(*command)
    assert ended.code == 0, ended.err
    assert len(json.loads(ended.out)["rules"]) == 2
    found = {path.name for path in (folder / "out/runs").iterdir()}
    assert found == {"my_rule-myrule", "v2-myrule"}
    unclear = call(*command, "--rule-option", "myrule.beta=0.5")
    assert unclear.code == 2
    assert "such as my_rule.py:MyRule.beta=" in unclear.err
    full = [*command[:-1], "--rule-option", "v2.py:MyRule.beta=0.8", "--out", "full"]
    assert call(*full).code == 0


def test_rules_that_would_share_a_folder_are_refused(call: Call, folder: Path) -> None:
    (folder / "within").mkdir()
    for file in ("within/my_rule.py", "within-my_rule.py"):
        (folder / file).write_text(
            RULE.replace("from helper_beside import SHORTEST", "SHORTEST = 0")
        )
    rules = ["--rules", "within/my_rule.py:MyRule,within-my_rule.py:MyRule"]
    for command in (["compare"], ["reproduce", "errors", "--data", "mnist"]):
        ended = call(*command, *rules)
        assert ended.code == 2
        assert "would lie in one folder, within-my_rule-myrule; give one of the two," in ended.err


def test_a_rules_defaults_may_be_of_any_kind(call: Call, folder: Path) -> None:
    fields = "where: object = Path('x')\n    kind: object = np.float32(0.5)\n    beta: float = 1.0"
    own = RULE.replace("beta: float = 1.0", fields)
    (folder / "odd.py").write_text(f"from pathlib import Path\n{own}")
    for _ in range(2):
        ended = call("run", "--rule", "odd.py:MyRule", *SMALL, "--out", "out", "--json")
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["rules"]
    told = json.loads(call("rules", "odd.py:MyRule", "--json").out)["rules"]["odd.py:MyRule"]
    assert [told["options"][name]["default"] for name in ("where", "kind")] == ["x", 0.5]


def test_true_is_refused_for_numbers_alone(call: Call, folder: Path) -> None:
    hints = ("object", "typing.Any", "typing.Literal[True, 'x']", "bool | float", "bool | None")
    fields = [f"own{k}: {hint} = None" for k, hint in enumerate(hints)]
    fields = ["beta: float = 1.0", "count: int | None = None", *fields]
    own = RULE.replace("beta: float = 1.0", "\n    ".join(fields))
    (folder / "odd.py").write_text(f"import typing\n{own}")
    rule = find("odd.py:MyRule")
    for k, hint in enumerate(hints):
        assert check_options(rule, {f"own{k}": True}) == {f"own{k}": True}, hint
    for name in ("beta", "count"):
        with pytest.raises(UnknownRule, match=f"{name} of myrule is True; it must be"):
            check_options(rule, {name: True})


@pytest.mark.parametrize("engine", ["sequential", "processes"])
def test_own_data_model_and_client_update(call: Call, folder: Path, engine: str) -> None:
    flags = ["--data", "own.py:data", "--model", "own.py:Net", "--split", "iid", "--clients", "2"]
    flags += ["--rule", "fedavg", "--rounds", "2", "--engine", engine, "--workers", "1"]
    ended = call("run", *flags, "--client-update", "own.py:train", "--eta", "0.3", "--out", "a")
    assert ended.code == 0, ended.err
    header, first, *_ = _lines(folder / "a")
    assert header["config"]["model"] == "own.py:Net"
    assert first["lost"] == {}
    ended = call("run", *flags, "--client-update", "own.py:LOCAL", "--eta", "0.3", "--out", "b")
    assert ended.code == 0, ended.err
    update = _lines(folder / "b")[0]["config"]["client_update"]
    assert (update["eta"], update["weight_decay"]) == (0.3, 0.5)


WRONG = {
    "no file": (["--rule", "none.py:MyRule"], "none.py cannot be read"),
    "no name": (["--rule", "my_rule.py"], "write file.py:Name"),
    "a wrong name": (["--rule", "my_rule.py:MyRul"], "did you mean MyRule?"),
    "not a rule": (["--rule", "my_rule.py:NOT_A_RULE"], "my_rule.py:NOT_A_RULE is not a rule"),
    "no module": (["--rule", "no_such_module.a:B"], "There is no module no_such_module"),
    "an option": (["--rule", "my_rule.py:MyRule", "--rule-option", "bta=1"], "did you mean beta?"),
    "a value": (["--rule", "my_rule.py:MyRule", "--rule-option", "beta=0.01"], "beta is too small"),
    "a type": (["--rule", "my_rule.py:MyRule", "--rule-option", "beta=x"], "must be a number"),
    "bad syntax": (["--rule", "bad.py:MyRule"], "bad.py cannot be loaded (SyntaxError"),
    "bad import": (["--rule", "fails.py:A"], "(ZeroDivisionError: division by zero, line 2 of fai"),
    "no update": (["--client-update", "own.py:Net"], "own.py:Net is not a client update"),
    "no model": (["--model", "own.py:data"], "own.py:data returned a Dataset; it must return a Mo"),
    "no data": (["--data", "own.py:train"], "own.py:train failed (TypeError"),
    "no file in a round": (
        ["--rule", "opens.py:MyRule"],
        "Your own code failed (FileNotFoundError: [Errno 2] No such file or directory: 'none.npy', "
        "line 37 of opens.py)",
    ),
    "in a round": (["--rule", "late.py:MyRule"], "(NameError: name 'typo' is not defined, line"),
    "in a round beside": (["--rule", "beside.py:MyRule"], "not defined, line 37 of late.py); mend"),
    "an exit": (
        ["--data", "leaves.py:data"],
        "failed (SystemExit: no data today, line 3 of leaves",
    ),
    "an exit in a round": (
        ["--rule", "leaves.py:MyRule"],
        "Your own code failed (SystemExit: bye, line 40 of leaves.py); mend it.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_own_code_is_one_sentence(call: Call, folder: Path, case: str) -> None:
    (folder / "bad.py").write_text("class MyRule\n")
    (folder / "fails.py").write_text("x = 1\n1 / 0\n")
    (folder / "late.py").write_text(RULE.replace("self.beta * (mean", "typo * (mean"))
    (folder / "opens.py").write_text(
        RULE.replace("self.beta * (mean", "np.load('none.npy') * (mean")
    )
    (folder / "beside.py").write_text("from late import MyRule\n")
    leaving = RULE.replace("self.beta * (mean", f"{LEAVE} * (mean")
    (folder / "leaves.py").write_text(
        f"def data():\n    import sys\n    sys.exit('no data today')\n{leaving}"
    )
    flags, sentence = WRONG[case]
    ended = call("run", *SMALL, *flags, "--out", "out")
    assert ended.code == 2
    assert sentence in ended.err
    assert "Traceback" not in ended.err
    assert ended.err.count("\n") == 1 or "in a round" in case
    assert "in a round" in case or not (folder / "out").exists()


def test_an_exit_in_own_code_is_a_mistake_in_another_process_too(call: Call, folder: Path) -> None:
    alone = RULE.replace("from helper_beside import SHORTEST", "SHORTEST = 0")
    (folder / "leaves.py").write_text(alone.replace("w + self.beta", f"{LEAVE} + self.beta"))
    rules = f"fedavg,{folder / 'leaves.py'}:MyRule"  # a process of earlier tests is elsewhere
    ended = call("compare", "--rules", rules, "--seeds", "1", *SMALL, "--jobs", "2", "--out", "out")
    assert ended.code == 2
    assert "Your own code failed (SystemExit: bye, line 37 of " in ended.err


def test_a_rule_that_failed_in_its_first_round_may_be_mended(call: Call, folder: Path) -> None:
    (folder / "late.py").write_text(RULE.replace("self.beta * (mean", "typo * (mean"))
    command = ["run", *SMALL, "--rule", "late.py:MyRule", "--out", "out"]
    assert call(*command).code == 2
    (folder / "late.py").write_text(RULE)
    assert call(*command).code == 0


UNUSABLE = {
    "before the first round": ["--metrics", "unusable.py:metric"],
    "within the first round": ["--uplink", "unusable.py:Uplink"],
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.parametrize("jobs", [[], ["--jobs", "2", "--seeds", "2"]], ids=["alone", "many"])
def test_a_command_that_failed_leaves_its_folder_to_the_mended_one(
    call: Call, folder: Path, case: str, jobs: list[str]
) -> None:
    (folder / "unusable.py").write_text(
        "def metric(outputs, labels):\n    raise ValueError\n\n\n"
        "class Uplink:\n    def lost(self, seed, t, clients):\n        raise ValueError\n"
    )
    command = ["compare", "--rules", "fedavg", *jobs] if jobs else ["run", "--rule", "fedavg"]
    command += [*SMALL, "--out", "out"]
    assert call(*command, *UNUSABLE[case]).code == 2
    assert call(*command).code == 0
    ended = call(*command, *UNUSABLE[case])
    assert "holds a run in which" in ended.err or "holds a run with" in ended.err

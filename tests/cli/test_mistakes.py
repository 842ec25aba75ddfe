"""Users' mistakes: one sentence on standard error, exit code 2, nothing written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

MISTAKES = [
    (["compare", "--alpha", "-1"], "--alpha is -1; it must be a number above 0."),
    (
        ["compare", "--rounds", "x"],
        "--rounds is 'x'; it must be a whole number from 1 to 1000000000.",
    ),
    (["compare", "--rounds", "0"], "--rounds is 0; it must be a whole number from 1"),
    (["compare", "--clients", "0"], "--clients is 0; it must be a whole number from 1"),
    (["compare", "--clients", "100000"], "choose a number of clients from 1 to"),
    (["compare", "--loss-rate", "1.5"], "--loss-rate is 1.5; it must be a number from 0 to 1."),
    (["compare", "--rules", "fedhav"], "There is no rule 'fedhav'; did you mean fedhaw?"),
    (["compare", "--rules", "fedavg,fedavg"], "The rule fedavg is named twice"),
    (["compare", "--rules", ","], "There is no rule to compare"),
    (["compare", "--seeds", "0"], "(for the one seed 0: --seeds 0,)"),
    (["compare", "--seeds", "a"], "--seeds is 'a'; it must be how many"),
    (["compare", "--seeds", "1,1"], "each one once"),
    (["compare", "--seeds", "4294967296,"], "--seeds is 4294967296; it must be a whole number"),
    (["compare", "--rounds", "9" * 5000], "--rounds is '999"),
    (["run", "--seed", "4294967296"], "--seed is 4294967296; it must be a whole number from 0"),
    (["compare", "--engine", "gpu"], "--engine is 'gpu'; it must be one of"),
    (["compare", "--model", "resnet"], "There is no model named 'resnet'"),
    (["compare", "--client-update", "sdg"], "There is no client update named 'sdg'"),
    (["compare", "--data", "mnsit"], "There is no data set 'mnsit'; did you mean mnist"),
    (["compare", "--data", "nothing.npz"], "nothing.npz"),
    (["compare", "--target", "85"], "write 0.85 for 85 percent"),
    (["compare", "--rulez", "fedavg"], "--rules"),
    (["compare", "--rule-option", "eta_gamma=1"], "must begin with one of the compared rules"),
    (["compare", "--rule-option", "fedhaw.eta_gama=1"], "did you mean eta_gamma?"),
    (["compare", "--recipe", "nothing.toml"], "nothing.toml cannot be read"),
    (["run", "--rule", "fedlws", "--rule-option", "beta"], "is written key=value"),
    (["run", "--rule", "fedlws", "--rule-option", "beta=big"], "must be a number"),
    (["run", "--rule-option", "eta_gamma=1e-4"], "fedhaw-auto has no option"),
    (["run", "--stand-in", "mine"], "--stand-in is 'mine'"),
    (["run", "--uplink", "nothing.csv"], "nothing.csv cannot be read"),
    (["run", "--uplink", "bursty", "--loss-rate", "0.9"], "Bursts of 3 rounds cannot lose"),
    (["run", "--train-samples", "99999"], "has only 4000 here"),
    (["run", "--split", "dirichelt"], "There is no split 'dirichelt'"),
    (["run", "nothing.toml"], "nothing.toml cannot be read"),
    (["report", "nothing"], "There is no folder nothing"),
    (["reproduce", "everything"], "'everything' is not one of heterogeneous"),
    (["reproduce", "errors", "--data", "imagenet"], "'imagenet' is not one of mnist"),
    (["reproduce", "errors", "--scale", "huge"], "'huge' is not one of full"),
    (["reproduce", "errors", "--data", "mnist-5k"], "'mnist-5k' is not one of mnist"),
    (["reproduce", "no-tuning", "--input-scale", "authors"], "no-tuning is always matched"),
    (["reproduce", "any-client", "--rules", "fedavg"], "any-client is always of all its rules"),
    (["reproduce", "figure", "--seeds", "0,4,0"], "--seeds names the seed 0 twice"),
    (["reproduce", "server-time", "--device", "banana"], "The device 'banana' cannot be used"),
    (["reproduce", "server-time", "--seeds", "3"], "server-time has no such setting"),
    (["reproduce", "server-time", "--scale", "small"], "--scale: server-time has no such setting"),
    (["reproduce", "errors", "--rules", ","], "--rules: it names no rule"),
    (
        ["run", "--rule", "fedavgm", "--rule-option", "eta_s=true"],
        "eta_s of fedavgm is True; it must be a number",
    ),
    (
        ["reproduce", "figure", "--rules", "fedavg,krom"],
        "There is no rule 'krom'; did you mean krum?",
    ),
    (["data", "split", "mnist-5k", "--out", "a.txt"], "must end in .npz"),
    (["data", "draw", "mnist-5k", "--out", "a.txt"], "must end in .png"),
    (["data", "check", "nothing.npz"], "nothing.npz"),
    (["data", "check", "cifar10"], "cifar10 was not found in"),
    (["rules", "fedprox"], "There is no rule 'fedprox'"),
    (["comprae"], "compare"),
    (["reproduce", "errors", "--data", "x", "--scale"], "'x' is not one of mnist"),
    (["run", "--out", ""], "What follows '--out' is empty"),
    (["compare", "--out="], "What follows '--out' is empty"),
    (["report", ""], "What follows 'report' is empty"),
    (["watch", "nothing"], "There is no folder nothing; give a folder of runs, and make it first"),
    (["watch", __file__], "test_mistakes.py; give a folder of runs"),
    (["watch", ".", "--port", "70000"], "70000 is not in the range"),
    (["watch", ".", "--host", "no such host"], "The address no such host, port 8642, cannot be"),
    (["export", "nothing", "a.npz"], "nothing"),
    (["export", ".", "a.npz"], "."),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_one_sentence(
    call: Call, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert sentence in ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_wrong_recipe_names_the_file_and_a_wrong_flag_the_flag(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "r.toml").write_text("alpha = -1\n")
    assert "alpha in r.toml is -1; it must be a number above 0." in call("run", "r.toml").err
    assert (
        "--alpha is -2; it must be a number above 0." in call("run", "r.toml", "--alpha", "-2").err
    )


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nothing"])
def test_a_folder_that_cannot_be_written(call: Call, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = call("run", "--rounds", "1", "--out", place)
    assert ended.code == 2
    assert "choose another" in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_folder_that_holds_another_run_is_left_alone(call: Call, tmp_path: Path) -> None:
    assert call("run", "--rule", "fedavg", "--rounds", "1", "--out", "here").code == 0
    before = (tmp_path / "here" / "history.jsonl").read_bytes()
    ended = call("run", "--rule", "fedavg", "--rounds", "1", "--alpha", "0.5", "--out", "here")
    assert ended.code == 2
    assert "here holds a run with alpha = 0.1, not 0.5; choose another folder" in ended.err
    assert (tmp_path / "here" / "history.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("dask://127.0.0.1:9", "No Dask scheduler answers at dask://127.0.0.1:9; start one with"),
        ("dask://nowhere", "No Dask scheduler answers at dask://nowhere"),
        ("dask://", "The cluster is 'dask://'; give dask://HOST:PORT"),
        ("spark://x", "The cluster is 'spark://x'; give dask://HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, sentence: str
) -> None:
    pytest.importorskip("distributed", reason="needs the extra cluster")
    monkeypatch.setattr("fedhaw.experiments.backends.PATIENCE", 0.2)
    ended = call("compare", "--rounds", "1", "--seeds", "1", "--cluster", address)
    assert (ended.code, ended.out) == (2, "")
    assert sentence in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_fault_of_our_own_keeps_its_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fedhaw.cli.output
    from fedhaw.cli import main

    def broken(value: object) -> None:
        raise ZeroDivisionError("not the user's doing")

    monkeypatch.setattr(fedhaw.cli.output, "print_json", broken)
    with pytest.raises(ZeroDivisionError):
        main(["rules", "--json"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a run has finished, with nobody to listen to it."""
    folder = tmp_path_factory.mktemp("finished")
    assert _run(folder, ">&- 2>&-").returncode == 0
    return folder


def _run(folder: Path, streams: str) -> subprocess.CompletedProcess[bytes]:
    command = f"{sys.executable} -m fedhaw run --rule fedavg --rounds 1 --out run {streams}"
    return subprocess.run(command, shell=True, cwd=folder, check=False, capture_output=True)


def test_a_run_goes_on_when_nobody_hears_of_it(tmp_path: Path) -> None:
    done = _run(tmp_path, "2> /dev/full")
    assert done.returncode == 0
    assert b"history" in done.stdout
    assert (tmp_path / "run" / "history.jsonl").exists()


@pytest.mark.parametrize(
    ("streams", "code"),
    [(">&-", 0), ("2>&-", 0), ("> /dev/full", 2), ("> /dev/full 2> /dev/full", 2)],
)
def test_closed_or_full_streams_are_no_fault(finished: Path, streams: str, code: int) -> None:
    done = _run(finished, streams)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_a_mistake_nobody_can_hear_of_is_still_a_mistake(tmp_path: Path) -> None:
    command = f"{sys.executable} -m fedhaw report nothing 2> /dev/full"
    done = subprocess.run(command, shell=True, cwd=tmp_path, check=False, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_terminal_that_knows_only_ascii(tmp_path: Path) -> None:
    run = {"kind": "run", "format": 1, "name": "übung", "rule": {"name": "x"}, "seed": 0}
    lines = [json.dumps(one) for one in (run, {"kind": "round", "round": 0, "accuracy": 0.5})]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    # Both in one process: most of the time goes into starting it.
    program = """
import contextlib, fedhaw.cli
for further in ([], ["--json"]):
    with contextlib.suppress(SystemExit):
        fedhaw.cli.main(["report", ".", "--out", "\\u00fc", *further])
    print("----", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    table, described, _ = done.stdout.decode("ascii").split("----\n")
    assert "report   " in table
    assert json.loads(described)["report"] == str(Path("ü", "report.html"))


def test_a_run_tells_of_itself_and_not_of_what_lies_below_it(call: Call) -> None:
    for out, rule in (("above/below", "fedavg"), ("above", "fedhaw")):
        ended = call("run", "--rule", rule, "--rounds", "1", "--out", out, "--json")
    assert list(json.loads(ended.out)["rules"]) == ["fedhaw"]

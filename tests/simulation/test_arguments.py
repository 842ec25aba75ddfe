"""One clear sentence for each mistake."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedhaw
from fedhaw import FedAvg, FedhawError, FedLAW, History
from fedhaw.clients import LocalUpdate
from fedhaw.data import Dataset, write_partition
from fedhaw.rules import Privacy, Private
from fedhaw.uplink import LetterUplink, RecordedUplink

Simulate = Callable[..., History]


class Unshapely:
    def lost(self, seed: int, round_index: int, clients: object) -> np.ndarray:
        return np.zeros(1, dtype=bool)


class Wordy:
    def lost(self, seed: int, round_index: int, clients: list[int]) -> np.ndarray:
        return np.array(["no"] * len(clients))


class Diverging:
    def init(self) -> Any:
        return FedAvg().init()

    def aggregate(self, state: Any, current: Any) -> Any:
        model, state = FedAvg().aggregate(state, current)
        return model * float("nan"), state


class NumPyRule:
    def init(self) -> Any:
        return FedAvg().init()

    def aggregate(self, state: Any, current: Any) -> Any:
        return current.client_models.numpy().mean(axis=0), state


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "rule class": ({"rule": FedAvg}, "give a rule such as"),
    "rule name": ({"rule": "fedavg"}, "give a rule such as"),
    "rule function": ({"rule": lambda f: None}, "give a rule such as"),
    "rule result": ({"rule": NumPyRule()}, "it must return a torch.float32 tensor"),
    "rule nan": ({"rule": Diverging()}, "a model that holds NaN or infinity"),
    "data": ({"data": 5}, "data is a int"),
    "data name": ({"data": "nmist"}, "nmist"),
    "model": ({"model": 3}, "model is 3"),
    "model name": ({"model": "mpl"}, "no model named 'mpl'"),
    "model outputs": ({"model": nn.Linear(6, 2)}, "Linear cannot be evaluated on samples"),
    "model inputs": ({"model": nn.Linear(5, 3)}, "Linear cannot be evaluated on samples"),
    "clients": ({"clients": 0}, "clients is 0; it must be a whole number from 1 to"),
    "clients float": ({"clients": 2.0}, "clients is 2.0"),
    "clients many": ({"clients": 1000, "split": "iid"}, "1000 clients"),
    "split": ({"split": "even"}, "no split 'even'"),
    "split type": ({"split": 4}, "split is 4"),
    "split empty": ({"split": []}, "a list of index arrays"),
    "split clients": ({"split": [[0, 1], [2]]}, "clients is 4, but split holds 2"),
    "split range": ({"split": [[0], [120]], "clients": None}, "client 1 names samples 120 to 120"),
    "split floats": ({"split": [[0.5]], "clients": None}, "split of client 0 is float64"),
    "alpha": ({"alpha": -1.0}, "alpha"),
    "alpha text": ({"alpha": "0.1"}, "alpha is '0.1'; it must be a number above 0"),
    "client_update": ({"client_update": "sdg"}, "no client update named 'sdg'"),
    "client_update type": ({"client_update": 3}, "client_update is 3"),
    "eta twice": (
        {"client_update": LocalUpdate(eta=0.5, batch=8)}, "eta is 0.1, but client_update says 0.5"
    ),
    "eta": ({"eta": -1.0}, "eta is -1.0"),
    "eta text": ({"eta": "big"}, "eta is 'big'; it must be a number"),
    "epochs": ({"epochs": 0}, "epochs is 0"),
    "batch": ({"batch": 0}, "batch is 0"),
    "uplink": ({"uplink": 1.5}, "uplink is 1.5; it must be a number from 0 to 1"),
    "uplink type": ({"uplink": [1]}, "uplink is [1]"),
    "uplink trace": ({"uplink": "no/such.csv"}, "no/such.csv cannot be read"),
    "uplink clients": ({"uplink": RecordedUplink(frozenset({(0, 4)}))}, "names client 4"),
    "uplink shape": ({"uplink": Unshapely()}, "one bool for each of the 4 clients"),
    "uplink words": ({"uplink": Wordy()}, "one bool for each of the 4 clients"),
    "stand_in": ({"stand_in": "zero"}, "stand_in is 'zero'; it must be one of 'global'"),
    "cohort": ({"cohort": 0}, "cohort is 0"),
    "cohort many": ({"cohort": 5}, "cohort is 5, but there are 4 clients; ask for at most 4"),
    "rounds": ({"rounds": 0}, "rounds is 0"),
    "rounds bool": ({"rounds": True}, "rounds is True"),
    "seed": ({"seed": -1}, "seed is -1; it must be a whole number from 0 to 4294967295"),
    "seed large": ({"seed": 2**40}, "seed is 1099511627776"),
    "split_seed": ({"split_seed": "x"}, "split_seed is 'x'"),
    "buffers": ({"buffers": "none"}, "buffers is 'none'"),
    "input_scale": ({"input_scale": "log"}, "input_scale is 'log'; it must be one of"),
    "also_scales": ({"also_scales": "log"}, "also_scales is 'log'; it must be a list of"),
    "evaluate_every": ({"evaluate_every": 0}, "evaluate_every is 0"),
    "engine": ({"engine": "fast"}, "engine is 'fast'"),
    "workers": ({"workers": 0}, "workers is 0"),
    "deadline": ({"deadline": -1.0}, "deadline is -1"),
    "device": ({"device": "tpu9"}, "device 'tpu9' cannot be used"),
    "checkpoint_every": ({"checkpoint_every": 0}, "checkpoint_every is 0"),
    "on_round": ({"on_round": "print"}, "on_round is 'print'"),
    "deadline text": ({"deadline": "5"}, "deadline is '5'; it must be a number"),
    "also_scales type": ({"also_scales": 5}, "also_scales is 5"),
    "data_dir": ({"data": "mnist", "data_dir": 5}, "data_dir is 5"),
    "split ragged": ({"split": [[1, [2]], [3]], "clients": None}, "split of client 0 is object"),
    "uplink class": ({"uplink": LetterUplink}, "bursty, by-label, hourly, late, letter, the"),
    "model class": ({"model": nn.Linear}, "function without arguments that returns"),
    "model raising": ({"model": lambda: 1 / 0}, "which failed (ZeroDivisionError"),
    "model huge": ({"model": "mlp-9999999999999"}, "does not fit this machine's memory"),
    "model absurd": ({"model": "mlp-" + "9" * 30}, "no model named"),
    "epochs bool": ({"epochs": True}, "epochs is True"),
    "resume": ({"resume": "no"}, "resume is 'no'; it must be True or False"),
    "name": ({"name": 5}, "name is 5"),
    "out": ({"out": 3}, "out is 3"),
    "former update": ({"update": "sgd"}, "update is called client_update now"),
    "former scale": ({"scale": "matched"}, "scale is called input_scale now"),
    "one thing twice": (
        {"optimizer": "adam", "client_update": "sgd"}, "optimizer is another name of client_update"
    ),
    "loss_rate twice": ({"uplink": 0.5, "loss_rate": 0.5}, "uplink says how much is lost"),
    "noisy_clients": ({"noisy_clients": 5}, "noisy_clients is 5, but there are 4 clients"),
    "noisy_clients given": (
        {"noisy_clients": 3, "split": [[0], [1]], "clients": None}, "but there are 2 clients"
    ),
    "unknown": ({"alhpa": 1.0}, "alhpa does not exist; did you mean alpha?"),
    "thousands of digits": ({"rounds": 10**5000}, "rounds is too long to be shown; it must be"),
    "no number at all": ({"eta": 10**5000}, "eta is too long to be shown; it must be a number"),
    "long name": ({"data": "x" * 300 + ".npz"}, "no name is longer than 255 characters"),
    "device without numbers": ({"device": "meta"}, "device 'meta' cannot be used"),
    "rounds None": ({"rounds": None}, "rounds is None; it must be a whole number"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_one_clear_sentence(
    run: Simulate, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(FedhawError) as refusal:
        run(**{"rule": FedAvg(), "rounds": 1} | arguments)
    message = str(refusal.value)
    assert says in message
    assert "\n" not in message
    assert message.endswith((".", "?"))


def test_numpys_numbers_will_do(run: Simulate, tmp_path: Path) -> None:
    run(
        FedAvg(), rounds=np.int64(2), seed=np.int32(1), cohort=np.int64(2), uplink=np.float64(0.5),
        clients=np.int64(4), alpha=np.float32(0.5), evaluate_every=np.int64(1), out=tmp_path,
        split_seed=np.int64(2),
    )  # fmt: skip
    assert History.read(tmp_path).run.config["cohort"] == 2


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import fedhaw
fedhaw.FedAvg()
from fedhaw import *
assert FedAvg is fedhaw.FedAvg and History and LetterUplink
assert not hasattr(fedhaw, "simulate") and "simulate" not in dir(fedhaw)
try:
    fedhaw.simulate
except fedhaw.FedhawError as error:
    print(error)
try:
    fedhaw.nothing
except AttributeError:
    print("no such attribute")
"""


def test_the_rules_alone_need_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "fedhaw.simulate needs torch, which is not installed; run: pip install 'fedhaw[sim]'.",
        "no such attribute",
    ]


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import fedhaw, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_numpys_whole_numbers_will_do(run: Simulate) -> None:
    plain = run(FedAvg(), batch=16, epochs=2, rounds=1)
    numpy = run(FedAvg(), batch=np.int64(16), epochs=np.int32(2), rounds=np.int64(1))
    assert plain.run.config == numpy.run.config


def test_where_the_data_names_the_clients_nobody_else_must(
    run: Simulate, tiny: Dataset, tmp_path: Path
) -> None:
    held = replace(tiny, holders=np.arange(120) % 7)
    assert len(run(FedAvg(), data=held, split="holders", clients=None, rounds=1).run.clients) == 7
    write_partition(tmp_path / "three.npz", list(np.arange(120).reshape(3, 40)))
    stored = run(FedAvg(), split=str(tmp_path / "three.npz"), clients=None, rounds=1)
    assert len(stored.run.clients) == 3


def test_a_handful_of_test_samples_suffices_unless_the_rule_wants_some(
    run: Simulate, tiny: Dataset
) -> None:
    few = replace(tiny, x_test=tiny.x_test[:4], y_test=tiny.y_test[:4])
    assert run(FedAvg(), data=few, rounds=1).finished
    with pytest.raises(FedhawError, match="asks for proxy data"):
        run(lambda federation: FedLAW(federation.proxy_losses()), data=few, rounds=1)


def test_a_private_run_sends_out_nothing_that_is_not_hidden() -> None:
    """And refuses nobody for a length that is judged by the others'."""
    pytest.importorskip(
        "dp_accounting", reason='needs dp-accounting: pip install "fedhaw[privacy]"'
    )
    rule = Private(FedAvg(), Privacy(1.0, 0.1))
    small: Any = {"clients": 3, "rounds": 2, "engine": "sequential", "length_limit": 1.001}
    history = fedhaw.simulate(rule, **small)
    assert not any(record.lost for record in history.records)
    assert "length_limit" in fedhaw.simulate(FedAvg(), **small).run.config
    assert "length_limit" not in history.run.config  # as in all runs without one
    with pytest.raises(FedhawError, match="travels beside them"):
        fedhaw.simulate(rule, client_update="scaffold", **small)
    with pytest.raises(FedhawError, match="group norm"):
        fedhaw.simulate(rule, model=with_statistics(), buffers="average", **small)


def with_statistics() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))

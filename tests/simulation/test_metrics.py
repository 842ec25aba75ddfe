"""Numbers that nobody between a rule, or a user's function, and the page knows by name."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from fedhaw import FedAvg, FedhawError, Round
from fedhaw.cli.progress import SweepProgress
from fedhaw.experiments.job import Event, Job
from fedhaw.experiments.recipe import Recipe
from fedhaw.history import History, RoundRecord
from fedhaw.reports import TensorBoardLog, comparison_table, keep_histories, load, to_markdown
from fedhaw.reports.figures import draw_all
from fedhaw.reports.page_data import page_data
from fedhaw.rules.base import Metrics
from fedhaw.simulation.evaluation import MOST_CLIENTS

Simulate = Callable[..., History]


@dataclass(frozen=True)
class MyState:
    clients: tuple[Any, ...]
    weights: Any
    mine: float = 0.0

    @property
    def metrics(self) -> Metrics:
        return {
            "my-number": self.mine,
            "$my \\list": np.array([self.mine, np.nan, 1e-7]),
            "of-each": dict.fromkeys(self.clients, self.mine),
        }


@dataclass(frozen=True)
class MyRule:
    """FedAvg, with something to tell."""

    def init(self) -> MyState:
        return MyState((), np.zeros(0))

    def aggregate(self, state: MyState, current: Round) -> tuple[Any, MyState]:
        model, after = FedAvg().aggregate(FedAvg().init(), current)
        return model, MyState(after.clients, after.weights, state.mine + 0.125)


def top2(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.topk(2).indices == labels[:, None]).any(-1).double().mean()


def test_what_a_users_rule_learnt_is_drawn_without_a_change_to_fedhaw(
    run: Simulate, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    history = run(MyRule(), out=runs / "mine", rounds=3)
    run(FedAvg(), out=runs / "fedavg", rounds=3)
    assert history.metrics["my-number"].tolist() == [0.125, 0.25, 0.375]
    assert history.metrics["$my \\list"].shape == (3, 3)
    assert set(history.client_metrics) == {"of-each"}
    assert history.client_metrics["of-each"].shape == (3, len(history.clients))

    comparison = load([runs])
    page = json.loads(json.dumps(page_data(comparison)))
    drawn = {metric["title"]: metric["series"] for metric in page["metrics"]}
    labels = [rule["label"] for rule in page["rules"]]
    mine = labels.index("myrule")
    assert drawn["my-number"][mine]["mean"] == [0.125, 0.25, 0.375]
    assert drawn["my-number"][1 - mine] is None
    assert drawn["$my \\list, mean"][mine]["mean"] == pytest.approx(
        [0.0625, 0.125, 0.1875], rel=1e-3
    )

    (panel,) = page["clients"][1]["panels"]
    assert (page["clients"][1]["heading"], panel["rule"]) == ("of-each", mine)
    assert panel["values"] == [[0.125, 0.25, 0.375]] * len(history.clients)

    table = comparison_table(comparison)
    column = [column.title for column in table.columns].index("Final my-number")
    assert table.cells[mine][column].text == "0.3750"
    assert "Final my-number" in to_markdown(table)
    names = {picture.name for picture in draw_all(comparison)}
    assert {"my-number", "_my _list"} <= names

    (kept, _) = sorted(keep_histories([runs], tmp_path / "kept"), key=lambda p: p.parent.name)[::-1]
    assert History.read(kept).metrics["$my \\list"][0, 2] == 1e-7
    assert History.read(kept).client_metrics["of-each"][2, 0] == 0.375


def test_it_is_shown_while_the_run_goes_on(run: Simulate, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = io.StringIO()
    job = Job("mine", Recipe.of({"rounds": 2}), tmp_path)
    with (
        SweepProgress([job], Console(file=out, width=200)) as progress,
        TensorBoardLog(tmp_path) as log,
    ):

        def both(record: RoundRecord) -> None:
            log.on_round(record)
            progress(Event("round", job, record))

        run(MyRule(), rounds=2, on_round=both, per_client_accuracy=True)
        progress(Event("finished", job))
    assert "my-number 0.125, $my \\list 1e-07 to 0.125, of-each 0.125 to 0.125" in out.getvalue()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {
        "my-number",
        "$my \\list/0",
        "$my \\list/2",
        "of-each/0",
        "client_accuracy/worst",
    } <= tags
    assert [event.value for event in events.Scalars("my-number")] == [0.125, 0.25]


def test_a_metric_that_is_no_number_gets_a_sentence(run: Simulate) -> None:
    @dataclass(frozen=True)
    class Odd(MyRule):
        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            model, after = super().aggregate(state, current)
            return model, type("Telling", (), {"metrics": {"word": "much"}, **vars(after)})()

    with pytest.raises(FedhawError, match="The metric 'word' of Telling is a str; it must be a n"):
        run(Odd(), rounds=1)


def test_a_users_evaluation_metrics_are_written_down(run: Simulate, tmp_path: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def samples(outputs: Tensor, labels: Tensor) -> int:
        seen.append(tuple(outputs.shape))
        return len(labels)

    history = run(
        FedAvg(), metrics={"top2": top2, "samples": samples}, also_scales=["authors"],
        evaluate_every=2, rounds=4, out=tmp_path,
    )  # fmt: skip
    assert set(seen) == {(48, 3)}  # all at once, never a part
    top = history.evaluation["top2"]
    assert np.flatnonzero(~np.isnan(top)).tolist() == [1, 3]
    assert (top[[1, 3]] >= history.accuracy[[1, 3]]).all()
    assert history.evaluation["samples/authors"][3] == 48
    plain = run(FedAvg(), also_scales=["authors"], evaluate_every=2, rounds=4)
    np.testing.assert_array_equal(plain.accuracy, history.accuracy)

    comparison = load([tmp_path])
    assert "Final top2" in [column.title for column in comparison_table(comparison).columns]
    assert {"top2", "top2, authors scale"} <= {m["title"] for m in page_data(comparison)["metrics"]}


def explode(outputs: Tensor, labels: Tensor) -> float:
    raise KeyError("no such class")


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"top2": 3}, "The metric 'top2' is 3; give a function"),
        ({"accuracy": top2}, "metrics names a metric 'accuracy'; choose a name"),
        ({"a/b": top2}, "metrics names a metric 'a/b'"),
        ({"": top2}, "metrics names a metric ''"),
        ([top2], r"metrics is \[.*\]; give functions by name"),
        ({"bad": explode}, "The evaluation metric 'bad' failed .KeyError: 'no such class'"),
        ({"bad": lambda outputs, labels: outputs}, "The evaluation metric 'bad' failed"),
        ({"bad": lambda outputs: 1.0}, "The evaluation metric 'bad' failed .TypeError"),
    ],
)
def test_a_wrong_metric_is_refused_before_anything_is_written(
    run: Simulate, tmp_path: Path, metrics: Any, said: str
) -> None:
    with pytest.raises(FedhawError, match=said):
        run(FedAvg(), metrics=metrics, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_accuracy_at_each_client(run: Simulate, tmp_path: Path, tiny: Any) -> None:
    parts = [np.arange(0, 60), np.arange(60, 90), np.arange(90, 120), []]
    history = run(
        FedAvg(), split=parts, per_client_accuracy=True, rounds=3, model="logistic", out=tmp_path
    )
    assert history.model is not None
    weight = torch.from_numpy(history.model[:18].reshape(3, 6).copy())
    logits = torch.from_numpy(tiny.x_train) @ weight.T + torch.from_numpy(history.model[18:].copy())
    right = (logits.argmax(1).numpy() == tiny.y_train).astype(float)
    each = [right[part].mean() for part in parts[:3]]
    assert history.records[-1].client_accuracy == pytest.approx(dict(zip("012", each, strict=True)))
    evaluation = {name: values[-1] for name, values in history.evaluation.items()}
    assert evaluation["client_accuracy/mean"] == pytest.approx(np.mean(each))
    assert evaluation["client_accuracy/worst"] == pytest.approx(min(each))
    assert evaluation["client_accuracy/spread"] == pytest.approx(np.std(each))
    assert np.isnan(history.client_accuracy[:, 3]).all()  # it holds nothing

    comparison = load([tmp_path])
    titles = [column.title for column in comparison_table(comparison, brief=True).columns]
    assert "Final clients' accuracy, worst" in titles
    shown = {metric["title"] for metric in page_data(comparison)["metrics"]}
    assert {f"Clients' accuracy, {what}" for what in ("mean", "worst", "spread")} <= shown


def test_of_many_clients_only_the_summary_is_kept(run: Simulate) -> None:
    parts = [[k % 120] for k in range(MOST_CLIENTS + 1)]
    history = run(FedAvg(), split=parts, clients=None, per_client_accuracy=True, rounds=1)
    assert history.records[0].client_accuracy == {}
    assert "client_accuracy/worst" in history.evaluation


def test_a_run_that_goes_on_must_measure_the_same(run: Simulate, tmp_path: Path) -> None:
    settings = {"out": tmp_path, "metrics": {"top2": top2}, "per_client_accuracy": True}
    run(FedAvg(), rounds=2, **settings)
    longer = run(FedAvg(), rounds=4, **settings)
    whole = run(FedAvg(), rounds=4, metrics={"top2": top2}, per_client_accuracy=True)
    np.testing.assert_array_equal(longer.evaluation["top2"], whole.evaluation["top2"])
    with pytest.raises(FedhawError, match=r"metrics: .*top2.* vs not set"):
        run(FedAvg(), rounds=4, out=tmp_path)


def test_per_client_accuracy_is_yes_or_no(run: Simulate) -> None:
    with pytest.raises(FedhawError, match="per_client_accuracy is 1; it must be true or false"):
        run(FedAvg(), per_client_accuracy=1)

"""How the runs of a sweep share the machine: who decides what, and what others get to see."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedhaw.experiments.sharing as sharing_module
import fedhaw.experiments.side_by_side as side_by_side
from fedhaw import __version__
from fedhaw.experiments.backends import ClusterError, cluster
from fedhaw.experiments.compare import ComparePlan, compare
from fedhaw.experiments.following import Following
from fedhaw.experiments.job import Event, Job
from fedhaw.experiments.recipe import Recipe, RuleChoice
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.experiments.running import load_data, prepare, run_recipe
from fedhaw.experiments.sharing import Sharing, fastest
from fedhaw.experiments.tracking import also_to_tensorboard
from fedhaw.history import FILE_NAME, History, HistoryFollower
from fedhaw.rules.threads import available_cores, limit_cores
from fedhaw.settings import InvalidSetting
from fedhaw.simulation.packing import Packed, unpacked

RULES = (RuleChoice("fedavg"), RuleChoice("fedhaw"))


@pytest.fixture(autouse=True)
def cores() -> Iterator[Callable[[int], None]]:
    yield limit_cores
    limit_cores(2**10)


def test_flags_say_how_many_and_where() -> None:
    assert Sharing.of({}) == Sharing()
    assert Sharing.of({"jobs": 3, "devices": "cuda:0, cuda:1"}) == Sharing(3, ("cuda:0", "cuda:1"))
    with pytest.raises(InvalidSetting, match="jobs is 0; it must be a whole number from 1 to 1024"):
        Sharing.of({"jobs": 0})
    with pytest.raises(InvalidSetting, match=r"--devices is 'cuda:0,,cpu'; name devices with"):
        Sharing.of({"devices": "cuda:0,,cpu"}, lambda name: f"--{name}")


def test_as_many_runs_at_a_time_as_are_faster() -> None:
    short = prepare(Recipe.of({"rounds": 2}))
    assert fastest([short] * 4, cores=2) == 1, "starting processes takes longer than the runs"
    demo = prepare(Recipe.of({}))
    assert fastest([demo] * 35, cores=2) == 2
    assert fastest([demo] * 35, cores=16) == 16
    assert fastest([demo] * 3, cores=16) == 3
    assert fastest([demo] * 35, cores=1) == fastest([demo], cores=8) == fastest([], cores=8) == 1
    stacked = prepare(Recipe.of({"engine": "stacked", "rounds": 200}))
    assert fastest([stacked] * 8, cores=2) == 2
    for alone in ({"engine": "processes"}, {"deadline": 5.0}):
        assert fastest([prepare(Recipe.of(alone))] * 35, cores=2) == 1


def test_a_large_model_is_run_side_by_side_only_if_that_is_faster_and_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = prepare(Recipe.of({"model": "cnn", "split": "iid", "clients": 16, "workers": 16}))
    assert sharing_module._speedup(large, 16) == pytest.approx(16, rel=0.01)
    assert fastest([large] * 2, cores=16) == 1, "each has all cores by itself"
    assert fastest([large] * 160, cores=16) == 16, "none waits for the others' longest client"
    monkeypatch.setattr(sharing_module, "_memory", lambda: 6 * sharing_module._bytes(large))
    assert fastest([large] * 160, cores=16) == 1, "three fit, and one has all cores"
    demo = prepare(Recipe.of({"clients": 10, "model": "mlp"}))
    monkeypatch.setattr(sharing_module, "_memory", lambda: 6 * sharing_module._bytes(demo))
    assert fastest([demo] * 160, cores=16) == 3


def test_who_asks_is_obeyed() -> None:
    short = prepare(Recipe.of({"rounds": 2}))
    assert Sharing().at_once([short] * 4) == 1
    assert Sharing(jobs=3).at_once([short] * 4) == 3
    assert Sharing(jobs=8).at_once([short] * 4) == 4
    assert Sharing(devices=("cuda:0", "cuda:1")).at_once([short] * 4) == 2
    assert Sharing(jobs=4, devices=("cuda:0", "cuda:1")).at_once([short] * 4) == 4
    assert Sharing(jobs=4).at_once([]) == 1


def test_a_packed_federation_is_the_same_one() -> None:
    federation = prepare(Recipe.of({"model": "mlp-256-64", "train_samples": 500}))
    packed = Packed.of(federation)
    assert len(packed.message) < 100_000, "what is large travels as arrays"
    again = unpacked(packed.message, packed.arrays)
    assert again.config() == federation.config()
    for ours, theirs in zip(again.training_samples(), federation.training_samples(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(again.initial_model, federation.initial_model)
    places = {array.ctypes.data for array in packed.arrays}
    assert again.training_samples()[0].data_ptr() in places, "nothing is copied"
    other = federation.with_seed(5)
    assert again.with_seed(5).config() == other.config()


def test_devices_are_handed_out_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs = ComparePlan(Recipe.of({"rounds": 1}), RULES, (0, 1, 2), tmp_path).jobs
    packed = Packed.of(prepare(jobs[0].recipe))
    handed: list[tuple[int, str | None]] = []

    def pretend(order: side_by_side.Order, *_: Any) -> side_by_side.Done:
        handed.append((order.number, order.device))
        return side_by_side.Done(order.number, {})

    @contextmanager
    def one_by_one(arrays: Any) -> Iterator[Any]:
        yield lambda function, calls: (function(*call) for call in calls)

    monkeypatch.setattr(side_by_side, "_work", pretend)
    for job in jobs:
        RecipeFolder(job.folder).claim(job.recipe, load_data(job.recipe))
    devices = ("cuda:0", "cuda:1")
    side_by_side.run_side_by_side(jobs, [packed] * 6, one_by_one, devices)
    assert handed == [(n, f"cuda:{n % 2}") for n in range(6)]


def test_two_at_a_time_give_the_histories_of_one_at_a_time(tmp_path: Path) -> None:
    recipe = Recipe.of({"rounds": 3, "model": "mlp-8", "loss_rate": 0.5, "train_samples": 400})
    found = []
    for jobs in (1, 2):
        events: list[Event] = []
        plan = ComparePlan(recipe, RULES, (0, 1), tmp_path / str(jobs))
        comparison = compare(plan, events.append, Sharing(jobs=jobs))
        found.append([_without_times(run) for run in comparison.runs])
        for job in plan.jobs:
            own = [event for event in events if event.job.folder == job.folder]
            assert [event.kind for event in own] == ["started", *["round"] * 3, "finished"]
            rounds = [event.record.round for event in own if event.record]
            assert rounds == [0, 1, 2]
    assert found[0] == found[1]
    events.clear()
    compare(plan, events.append, Sharing(jobs=2))
    assert [event.kind for event in events] == ["skipped"] * 4


def _without_times(run: History) -> Any:
    return run.run.config, [replace(record, seconds={}) for record in run.records]


@pytest.mark.parametrize(
    "settings",
    [{"engine": "stacked", "model": "mlp-16"}, {"model": "mlp-700-700", "train_samples": 300}],
)
def test_results_do_not_depend_on_the_number_of_threads(settings: dict[str, Any]) -> None:
    recipe = Recipe.of({"rounds": 2, "rule": "fedhaw", **settings})
    models = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        models.append(run_recipe(recipe).model)
    np.testing.assert_array_equal(models[0], models[1])


def test_a_history_that_is_cut_back_is_followed_round_by_round(tmp_path: Path) -> None:
    recipe = Recipe.of({"rounds": 6, "model": "mlp-8", "train_samples": 200})
    run_recipe(recipe, tmp_path)
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines(keepends=True)
    path = tmp_path / "copy.jsonl"
    follower = HistoryFollower(path)

    def news() -> list[int]:
        return [record.round for record in follower.news()]

    assert news() == []
    path.write_bytes(b"".join(lines[:4]) + lines[4][:10])
    assert news() == [0, 1, 2]
    path.write_bytes(b"".join(lines[:2]))
    assert news() == []
    # Grown beyond where it was, by lines that are one digit longer.
    longer = [line.replace(b'"kind"', b' "kind"') for line in lines[1:3]]
    path.write_bytes(lines[0] + b"".join(_sealed(line) for line in longer) + b"".join(lines[3:]))
    assert news() == [3, 4, 5]
    assert news() == []


def _sealed(line: bytes) -> bytes:
    import zlib

    body = line.rpartition(b',"crc32":"')[0]
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def test_what_the_watch_raises_reaches_whoever_waits(tmp_path: Path) -> None:
    def full(event: Event) -> None:
        raise OSError("no room")

    job = Job("fedavg", Recipe.of({"rounds": 1}), tmp_path)
    with Following(full) as following:
        following.started(job)
        with pytest.raises(OSError, match="no room"):
            following.finished(job)


def test_a_job_has_one_core(cores: Callable[[int], None]) -> None:
    cores(1)
    assert available_cores() == 1


def test_event_files_of_a_resumed_run_hold_every_round_once(tmp_path: Path) -> None:
    recipe = Recipe.of({"rounds": 5, "model": "mlp-8", "train_samples": 200, "checkpoint_every": 2})
    plan = ComparePlan(recipe, RULES[:1], (0,), tmp_path)

    class Stop(Exception):
        pass

    def stop(event: Event) -> None:
        if event.record is not None and event.record.round == 2:
            raise Stop

    events = tmp_path / "tensorboard" / "fedavg" / "seed-0"
    with pytest.raises(Stop), also_to_tensorboard(tmp_path / "tensorboard", stop) as watch:
        compare(plan, watch)
    for _ in range(2):  # gone on, and passed over
        with also_to_tensorboard(tmp_path / "tensorboard", lambda event: None) as watch:
            compare(plan, watch)
        assert _steps(events) == [0, 1, 2, 3, 4]


def _steps(folder: Path) -> Sequence[int]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [event for file in folder.iterdir() for event in EventFileLoader(str(file)).Load()]
    return [event.step for event in events if event.summary.value]


def test_a_worker_that_does_not_see_the_folder_sends_back_what_it_wrote(tmp_path: Path) -> None:
    recipe = Recipe.of({"rounds": 5, "model": "mlp-8", "train_samples": 200, "checkpoint_every": 2})
    whole, fetched = (
        Job("fedavg", recipe.with_(rule="fedavg"), tmp_path / name) for name in ("whole", "fetched")
    )
    run_recipe(whole.recipe, whole.folder)
    half = whole.recipe.with_(rounds=2)  # interrupted, as it were
    run_recipe(half, fetched.folder)
    packed = Packed.of(prepare(whole.recipe))
    seen: list[dict[str, bytes]] = []
    for files in ({}, side_by_side._files(fetched.folder)):
        order = side_by_side.Order(3, fetched, 0, files, None, packed.message, {}, __version__)
        done = side_by_side._work(order, *packed.arrays)
        assert done.number == 3
        assert list(done.files)[-1] == FILE_NAME
        seen.append(done.files)
    assert len(History.read(fetched.folder).records) == 2, "the folder is not the worker's"
    side_by_side._write(fetched, seen[1])
    ours, theirs = History.read(fetched.folder), History.read(whole.folder)
    assert ours.finished
    assert _without_times(ours)[1] == _without_times(theirs)[1]
    last = sorted((whole.folder / "checkpoints").iterdir())[-1]
    assert seen[0][f"checkpoints/{last.name}"] == seen[1][f"checkpoints/{last.name}"]
    assert (fetched.folder / "checkpoints" / last.name).read_bytes() == last.read_bytes()


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    job = Job("fedavg", Recipe.of({}), tmp_path)
    with pytest.raises(ClusterError, match=r"has fedhaw .*, not 0\.0; install the same version"):
        side_by_side._work(side_by_side.Order(0, job, 0, {}, None, b"", {}, "0.0"))


def test_only_known_kinds_of_clusters_are_taken() -> None:
    for wrong in ("spark://x", "dask", "127.0.0.1:8786"):
        with pytest.raises(ClusterError, match="give dask://HOST:PORT, ray://HOST:PORT, or ray"):
            cluster(wrong)

"""Many runs, one after the other; each uses all the workers its engine wants.

A sweep may be killed at any moment. Run again, it passes over the runs that have finished, goes on
with the one that had not from its last checkpoint, and starts the others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fedhaw.experiments.recipe import Recipe
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.experiments.running import load_data, prepare, run_recipe
from fedhaw.history import RoundRecord
from fedhaw.reports import TensorBoardLog


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        label: what progress calls it, such as "fedhaw".
        recipe: what to run.
        folder: where.
        name: what reports call it, default the rule's name.
    """

    label: str
    recipe: Recipe
    folder: Path
    name: str | None = None


@dataclass(frozen=True)
class Event:
    """Something happened in a sweep.

    Attributes:
        kind: the job was "skipped" because it had finished before, "started", is one "round"
            further, or "finished".
        job: which one.
        record: the round's record, as in the history; only with "round".
    """

    kind: Literal["skipped", "started", "round", "finished"]
    job: Job
    record: RoundRecord | None = None


Watch: TypeAlias = Callable[[Event], None]


def run_sweep(jobs: Sequence[Job], watch: Watch = lambda event: None) -> None:
    """A run of every job that has not finished yet.

    Args:
        jobs: in the order they are to be run; those with the same folder must be the same.
        watch: is told what happens.

    Raises:
        FedhawError: data is missing, a folder holds something else, or the like. Whatever can be
            found out without training is found out before the first run starts.
    """
    waiting = []
    for job in jobs:
        if RecipeFolder(job.folder).finished(job.recipe, load_data(job.recipe)):
            watch(Event("skipped", job))
        else:
            waiting.append(job)
    # Rules and seeds share a federation; what is wrong with any of them is known before the first.
    recipes = {_federation(job.recipe): job.recipe for job in waiting}
    federations = {key: prepare(recipe) for key, recipe in recipes.items()}
    for job in waiting:
        RecipeFolder(job.folder).claim(job.recipe, load_data(job.recipe))
        watch(Event("started", job))
        federation = federations[_federation(job.recipe)]
        run_recipe(job.recipe, job.folder, _round_watcher(job, watch), job.name, federation)
        watch(Event("finished", job))


def _federation(recipe: Recipe) -> str:
    """The same for recipes that differ only in rule and seed."""
    return repr({**recipe.settings, "seed": None})


def _round_watcher(job: Job, watch: Watch) -> Callable[[RoundRecord], None]:
    return lambda record: watch(Event("round", job, record))


@contextmanager
def also_to_tensorboard(folder: Path, watch: Watch) -> Iterator[Watch]:
    """A watch that writes TensorBoard event files, too: `<folder>/<label>/seed-<seed>`.

    Raises:
        TrackingError: TensorBoard is not installed, or the folder cannot be written.
    """
    logs: dict[Path, TensorBoardLog] = {}

    def both(event: Event) -> None:
        job = event.job
        if event.kind == "started":
            name = f"seed-{job.recipe.settings['seed']}"
            logs[job.folder] = TensorBoardLog(folder / job.label / name)
        elif event.kind == "round" and event.record is not None:
            logs[job.folder].on_round(event.record)
        elif event.kind == "finished":
            logs.pop(job.folder).close()
        watch(event)

    try:
        yield both
    finally:
        for log in logs.values():
            log.close()

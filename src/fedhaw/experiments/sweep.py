"""Many runs: one after the other, or several at a time.

A sweep may be killed at any moment. Run again, it passes over the runs that have finished, goes on
with those that had not from their last checkpoints, and starts the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedhaw.experiments.job import Event, Job, Watch
from fedhaw.experiments.recipe import Recipe
from fedhaw.experiments.recipe_folder import RecipeFolder
from fedhaw.experiments.running import load_data, prepare, run_recipe
from fedhaw.experiments.sharing import Sharing
from fedhaw.history import RoundRecord

if TYPE_CHECKING:
    from fedhaw.simulation import Federation


def run_sweep(
    jobs: Sequence[Job], watch: Watch = lambda event: None, sharing: Sharing | None = None
) -> None:
    """A run of every job that has not finished yet.

    Args:
        jobs: in the order they are to be run; those with the same folder must be the same.
        watch: is told what happens.
        sharing: how many at a time, and where; by default as many as are fastest.

    Raises:
        FedhawError: data is missing, a folder holds something else, or the like. Whatever can be
            found out without training is found out before the first run starts.
    """
    sharing = sharing or Sharing()
    waiting: dict[Path, Job] = {}
    for job in jobs:
        if RecipeFolder(job.folder).finished(job.recipe, load_data(job.recipe)):
            watch(Event("skipped", job))
        elif sharing.devices:  # the first will do to find out what is wrong
            on_device = job.recipe.with_(device=sharing.devices[0])
            waiting[job.folder] = replace(job, recipe=on_device)
        else:
            waiting[job.folder] = job
    # Rules and seeds share a federation; what is wrong with any of them is known before the first.
    recipes = {_federation(job.recipe): job.recipe for job in waiting.values()}
    federations = {key: prepare(recipe) for key, recipe in recipes.items()}
    runs = [federations[_federation(job.recipe)] for job in waiting.values()]
    at_once = sharing.at_once(runs)
    if waiting and (sharing.cluster or at_once > 1):
        _run_side_by_side(list(waiting.values()), federations, sharing, at_once, watch)
        return
    for job, federation in zip(waiting.values(), runs, strict=True):
        RecipeFolder(job.folder).claim(job.recipe, load_data(job.recipe))
        watch(Event("started", job))
        run_recipe(job.recipe, job.folder, _round_watcher(job, watch), job.name, federation)
        watch(Event("finished", job))


def _run_side_by_side(
    jobs: Sequence[Job],
    federations: "Mapping[str, Federation]",
    sharing: Sharing,
    at_once: int,
    watch: Watch,
) -> None:
    from fedhaw.experiments.backends import cluster, processes
    from fedhaw.experiments.side_by_side import run_side_by_side
    from fedhaw.simulation.packing import Packed

    elsewhere = sharing.cluster is not None
    backend = cluster(sharing.cluster, sharing.jobs) if sharing.cluster else processes(at_once)
    packed = {key: Packed.of(federation) for key, federation in federations.items()}
    parts = [packed[_federation(job.recipe)] for job in jobs]
    run_side_by_side(jobs, parts, backend, sharing.devices, elsewhere, watch)


def _federation(recipe: Recipe) -> str:
    """The same for recipes that differ only in rule and seed."""
    return repr({**recipe.settings, "seed": None})


def _round_watcher(job: Job, watch: Watch) -> Callable[[RoundRecord], None]:
    return lambda record: watch(Event("round", job, record))

"""One run of a sweep, and what happens to it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fedhaw.experiments.recipe import Recipe
from fedhaw.history import RoundRecord


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

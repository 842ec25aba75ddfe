"""The letter's tables and its figure: run what is missing, and set ours beside the letter's.

Every number comes from runs in `runs/` below the output folder, one folder a run, shared between
tables. A table is written as soon as its runs are there.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedhaw.experiments.job import Job, Watch
from fedhaw.experiments.letter import (
    DataName,
    LetterCell,
    LetterConditions,
    LetterTable,
    TableName,
    letter,
    prox_row,
)
from fedhaw.experiments.letter import letter_table as cells_of
from fedhaw.experiments.recipe import Recipe
from fedhaw.experiments.sharing import Sharing
from fedhaw.experiments.sweep import run_sweep
from fedhaw.experiments.verdict import FLOOR, Verdict, verdict
from fedhaw.history import History, HistoryError
from fedhaw.reports import Column, Spread, Table, write_report, write_table
from fedhaw.reports.metrics import ACCURACY, measured


@dataclass(frozen=True)
class ReproducePlan:
    """What of the letter is reproduced, and where.

    Attributes:
        tables: which tables.
        data: which data sets.
        seeds: each once.
        conditions: full or smaller, and further keys of the recipes.
        out: folder of everything.
    """

    tables: tuple[TableName, ...]
    data: tuple[DataName, ...]
    seeds: tuple[int, ...]
    conditions: LetterConditions
    out: Path

    @property
    def letter_tables(self) -> tuple[LetterTable, ...]:
        """Every table of every data set."""
        return tuple(
            cells_of(name, data, self.conditions) for data in self.data for name in self.tables
        )

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every run, each once."""
        found = {job.folder: job for table in self.letter_tables for job in self.jobs_of(table)}
        return tuple(found.values())

    def jobs_of(self, table: LetterTable) -> tuple[Job, ...]:
        """The runs of one table, seed by seed."""
        return tuple(
            self.job(table, recipe, seed) for seed in self.seeds for recipe in table.recipes
        )

    def job(self, table: LetterTable, recipe: Recipe, seed: int) -> Job:
        """One run of a table."""
        settings = recipe.settings
        place = f"alpha{settings['alpha']:g}-pe{settings['loss_rate']:g}"
        rule, name = recipe.rule.entry, None
        if "fedprox" in str(settings["client_update"]):
            place += "-fedprox"
            name = prox_row(rule)
        scale = settings["input_scale"]
        own = rule.folder if scale == "matched" else f"{rule.folder}-{scale}"
        runs = self.conditions.runs(self.out)
        folder = runs / f"{table.data}-{self.conditions.size}" / place / own
        return Job(
            f"{table.data} {place} {own}", recipe.with_(seed=seed), folder / f"seed-{seed}", name
        )


@dataclass(frozen=True)
class Result:
    """A cell with our number in it, in percent.

    Attributes:
        cell: where it stands, and the letter's number.
        ours: mean and spread over seeds.
        verdict: ours against the letter's.
    """

    cell: LetterCell
    ours: Spread
    verdict: Verdict

    @property
    def text(self) -> str:
        """Both numbers and the verdict, as one reads them."""
        spread = f" ± {self.ours.std:.2f}" if self.ours.seeds > 1 else ""
        beside = "" if self.cell.letter is None else f" / {self.cell.letter:.2f} {self.verdict}"
        return f"{self.ours.mean:.2f}{spread}{beside}"


@dataclass(frozen=True, eq=False)
class Reproduction:
    """One table with our numbers.

    Attributes:
        table: the letter's.
        notice: how our runs differ from the letter's, or "".
        results: in the order of the table's cells.
        paths: the files written.
    """

    table: LetterTable
    notice: str
    results: tuple[Result, ...]
    paths: tuple[Path, ...]

    def shown(self) -> Table:
        """The table as it is printed: a row a rule, both numbers in every cell."""
        return _shown(self.table, self.notice, self.results)

    def described(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "table": self.table.name,
            "data": self.table.data,
            "title": self.table.title,
            "notice": self.notice or None,
            "cells": [
                {
                    "row": result.cell.row,
                    "column": result.cell.column,
                    "ours": {"mean": result.ours.mean, "std": result.ours.std},
                    "seeds": result.ours.seeds,
                    "letter": result.cell.letter,
                    "verdict": result.verdict,
                }
                for result in self.results
            ],
            "files": [str(path) for path in self.paths],
        }


def reproduce(
    plan: ReproducePlan, watch: Watch = lambda event: None, sharing: Sharing | None = None
) -> Iterator[Reproduction]:
    """A run of what has not finished yet; yields each table once it is complete and written.

    Nothing is run where histories were kept; a table then has the runs that are there.

    Args and errors are those of `run_sweep`, with a plan in place of its jobs.
    """
    seen: set[Path] = set()
    for table in plan.letter_tables:
        jobs = [job for job in plan.jobs_of(table) if job.folder not in seen]
        if plan.conditions.kept is None:
            run_sweep(jobs, watch, sharing)
        seen.update(job.folder for job in jobs)
        yield _write(plan, table)


def _notice(table: LetterTable, histories: Iterable[History]) -> str:
    """How the runs of a table differ from the letter's, in words; "" when they do not."""
    parts = [table.notice] if table.notice else []
    recipe = table.cells[0].recipe
    clients = next(iter(histories)).run.clients.values()
    here = sum(client.examples or 0 for client in clients)
    whole = letter()["settings"][table.data]["letter_samples"]
    if here < whole and recipe.settings["train_samples"] is None:
        what = "features" if table.data == "dogs" else "images"
        parts.append(
            f"{here:,} of the letter's {whole:,} training {what}"
            + (", split anew over 10 clients" if table.data == "dogs" else "")
        )
    return f"Smaller than the letter's experiment: {'; '.join(parts)}." if parts else ""


def _write(plan: ReproducePlan, table: LetterTable) -> Reproduction:
    histories = {
        job.folder: History.read(job.folder)
        for job in plan.jobs_of(table)
        if plan.conditions.kept is None or job.folder.exists()
    }
    if not histories:
        raise HistoryError(f"{plan.conditions.kept} has no history of {table.title}.")
    notice = _notice(table, histories.values())
    found = (_result(plan, table, cell, histories) for cell in table.cells)
    results = tuple(r for r in found if r.ours.seeds or plan.conditions.kept is None)
    base = plan.out / f"{table.name}-{table.data}-{plan.conditions.size}"
    paths = write_table(base, _shown(table, notice, results), _csv(results, notice))
    if table.name == "figure":
        # The runs whose own input scale is the one reported; the others repeat FedLAW's.
        recipes = {c.recipe.fingerprint(): c.recipe for c in table.cells if _is_own_scale(c)}
        folders = [plan.job(table, r, seed).folder for r in recipes.values() for seed in plan.seeds]
        there = [folder for folder in folders if folder in histories]
        report = write_report(there, base, title=table.title, notice=notice or None)
        paths += report.paths
    return Reproduction(table, notice, results, paths)


def _result(
    plan: ReproducePlan, table: LetterTable, cell: LetterCell, histories: Mapping[Path, History]
) -> Result:
    accuracy = ACCURACY if _is_own_scale(cell) else measured(f"{ACCURACY.key}/{cell.input_scale}")
    folders = (plan.job(table, cell.recipe, seed).folder for seed in plan.seeds)
    ours = Spread.of(
        [
            100 * float(accuracy.read(histories[folder])[cell.round_index])
            for folder in folders
            if folder in histories
        ]
    )
    return Result(cell, ours, verdict(ours.mean, ours.std, cell.letter))


def _is_own_scale(cell: LetterCell) -> bool:
    return cell.recipe.settings["input_scale"] == cell.input_scale


def _shown(table: LetterTable, notice: str, results: tuple[Result, ...]) -> Table:
    by_place = {(result.cell.row, result.cell.column): result.text for result in results}
    rows = dict.fromkeys(result.cell.row for result in results)
    counts = {result.ours.seeds for result in results}
    fewest, most = min(counts), max(counts)
    seeds = "one seed" if most == 1 else f"{most} seeds"
    if fewest < most:  # of what was kept, some runs may be missing
        seeds = f"{fewest} to {seeds}"
    return Table(
        (Column("Rule"), *(Column(column) for column in table.columns)),
        tuple((row, *(by_place.get((row, column)) for column in table.columns)) for row in rows),
        title=table.title,
        notice=notice or None,
        notes=(
            f"Accuracy in %: ours, mean ± sample standard deviation over {seeds} / the "
            f"letter's single run, which is within when it is no further from our mean than two "
            f"standard deviations (at least {FLOOR:g} points); otherwise ours is above or below.",
        ),
    )


def _csv(results: tuple[Result, ...], notice: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "column", "ours", "std", "seeds", "letter", "verdict", "notice"])
    for result in results:
        cell, ours = result.cell, result.ours
        std = f"{ours.std:.4f}" if ours.seeds > 1 else ""
        published = "" if cell.letter is None else f"{cell.letter:.2f}"
        writer.writerow(
            [cell.row, cell.column, f"{ours.mean:.4f}", std, ours.seeds, published,
             result.verdict, notice]
        )  # fmt: skip
    return out.getvalue()

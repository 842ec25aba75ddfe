"""Whether FedHAW can do without tuning: one default against tuned and untuned rules, cell by cell.

A cell is one federation: data, heterogeneity, losses, and how the clients learn. The cells and the
contenders stand in `no_tuning.toml` beside this file. Every contender sees the same splits, initial
models, client randomness and losses, so that differences are taken seed by seed. What the numbers
say is worked out in `fedhaw.experiments.scores` and `standings`.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from fedhaw.experiments.job import Event, Job, Watch
from fedhaw.experiments.letter import RUN_SIZES, RunSize, check_known
from fedhaw.experiments.recipe import Recipe
from fedhaw.experiments.running import load_data
from fedhaw.experiments.scores import CellScores, Scores
from fedhaw.experiments.sharing import Sharing
from fedhaw.experiments.standings import Standings
from fedhaw.experiments.sweep import run_sweep
from fedhaw.history import History
from fedhaw.reports import Table, write_table
from fedhaw.rules.registry import RULES

GRID = "fedhaw-grid"


@cache
def evidence() -> dict[str, Any]:
    """Everything in `no_tuning.toml`."""
    text = files("fedhaw.experiments").joinpath("no_tuning.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def data_names() -> tuple[str, ...]:
    """The data sets there are cells of."""
    return tuple(evidence()["data"])


@dataclass(frozen=True)
class TuningCell:
    """One federation on which all contenders run.

    Attributes:
        key: its folder's name.
        data: "mnist-5k", "mnist", "cifar10" or "dogs".
        title: for people.
        recipe: what to run; its rule and seed are replaced.
        seeds: each once.
    """

    key: str
    data: str
    title: str
    recipe: Recipe
    seeds: tuple[int, ...]

    def recipe_of(self, contender: str, eta_gamma: float | None = None) -> Recipe:
        """What a contender runs here; of the grid's, one rate must be chosen."""
        if contender != GRID:
            return self.recipe.with_(rule=contender)
        return self.recipe.with_(rule={"name": "fedhaw", "options": {"eta_gamma": eta_gamma}})

    def seeds_of(self, contender: str) -> tuple[int, ...]:
        """The seeds a contender is run with: the first few for a slow one."""
        return self.seeds[: evidence()["most_seeds"].get(contender)]


@dataclass(frozen=True)
class NoTuningPlan:
    """Which cells are run, and where.

    Attributes:
        data: which data sets.
        size: "full", "medium", "small" or "tiny".
        out: folder of everything.
        seeds: for every cell; None: as many as each cell asks for.
        changes: further keys for every recipe, such as device and data_dir.
    """

    data: tuple[str, ...]
    size: RunSize
    out: Path
    seeds: tuple[int, ...] | None = None
    changes: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        check_known("scale", self.size, RUN_SIZES)
        for name in self.data:
            check_known("data set", name, data_names())

    @property
    def cells(self) -> tuple[TuningCell, ...]:
        """Every cell, data set by data set."""
        return tuple(cell for data in self.data for cell in self._cells_of(data))

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every run there will be; the rate the grid's later seeds run with is not yet known."""
        rate = evidence()["grid"][0]
        return tuple(
            job
            for cell in self.cells
            for job in (*self.first_jobs(cell), *self.grid_jobs(cell, rate, cell.seeds))
        )

    def first_jobs(self, cell: TuningCell) -> tuple[Job, ...]:
        """The runs of a cell that need no choice, seed by seed, then the grid's first seed."""
        own = [name for name in evidence()["contenders"] if name != GRID]
        plain = [
            self._job(cell, name, cell.recipe_of(name), seed, name)
            for seed in cell.seeds
            for name in own
            if seed in cell.seeds_of(name)
        ]
        grid = [self.grid_jobs(cell, rate, cell.seeds[:1]) for rate in evidence()["grid"]]
        return (*plain, *(job for jobs in grid for job in jobs))

    def grid_jobs(self, cell: TuningCell, rate: float, seeds: tuple[int, ...]) -> tuple[Job, ...]:
        """FedHAW with one eta_gamma of the grid."""
        recipe = cell.recipe_of(GRID, rate)
        # With the letter's own rate it is a run that is there already.
        is_letters = recipe.fingerprint() == cell.recipe_of("fedhaw").fingerprint()
        folder = "fedhaw" if is_letters else f"{GRID}-{rate:.0e}"
        return tuple(self._job(cell, GRID, recipe, seed, folder) for seed in seeds)

    @property
    def notice(self) -> str:
        """How large the runs are; every table says so."""
        parts = []
        for data in self.data:
            recipe = self._cells_of(data)[0].recipe
            rounds, epochs = recipe.settings["rounds"], recipe.settings["epochs"]
            length = "1 epoch" if epochs == 1 else f"{epochs} epochs"
            parts.append(
                f"{evidence()['data'][data]['title']}: {len(load_data(recipe).y_train):,} training "
                f"samples, {rounds} rounds of {length}, {recipe.settings['model']}"
            )
        return f"Scale {self.size}. {'; '.join(parts)}."

    def _job(self, cell: TuningCell, label: str, recipe: Recipe, seed: int, folder: str) -> Job:
        place = self.out / "runs" / "no-tuning" / cell.key / folder / f"seed-{seed}"
        name = None if folder in RULES else GRID
        return Job(f"{cell.key} {label}", recipe.with_(seed=seed), place, name)

    def _cells_of(self, data: str) -> tuple[TuningCell, ...]:
        described = evidence()["data"][data]
        sized = described.get(self.size, {})
        keys = {**described["recipe"], **sized.get("recipe", {}), **dict(self.changes)}
        base = Recipe.of({**keys, "split": "letter", "clients": 10, "rule": "fedavg"})
        first = evidence()["first_seed"]
        count = sized.get("seeds", described["seeds"])
        seeds = self.seeds or tuple(range(first, first + count))
        return tuple(
            _cell(data, described["title"], self.size, recipe, seeds)
            for block in sized.get("cells", described["cells"])
            for recipe in _recipes(base, block)
        )


def _recipes(base: Recipe, block: Mapping[str, Any]) -> Iterator[Recipe]:
    """Every combination of a block's lists."""
    for alpha, loss_rate, noisy_clients, (update, eta) in product(
        block["alpha"], block["loss_rate"], block.get("noisy_clients", [0]), block["updates"]
    ):
        yield base.with_(
            alpha=alpha,
            loss_rate=loss_rate,
            noisy_clients=noisy_clients,
            client_update=update,
            eta=eta,
        )


def _cell(
    data: str, title: str, size: RunSize, recipe: Recipe, seeds: tuple[int, ...]
) -> TuningCell:
    settings = recipe.settings
    alpha, loss_rate, eta = settings["alpha"], settings["loss_rate"], settings["eta"]
    update, noisy = settings["client_update"], settings["noisy_clients"]
    key = f"{data}-{size}-alpha{alpha:g}-pe{loss_rate:g}-{update}-{eta:g}"
    words = [title, f"D_alpha {alpha:g}", f"p_e {loss_rate:g}", f"{update} {eta:g}"]
    if noisy:
        key += f"-noisy{noisy}"
        words.append(f"{noisy} noisy")
    return TuningCell(key, data, ", ".join(words), recipe, seeds)


@dataclass(frozen=True, eq=False)
class NoTuningResult:
    """What is known after some of the cells.

    Attributes:
        tables: the cells, and the standings over all of them.
        standings: the numbers behind them.
        rates: the grid's choice of eta_gamma, by cell.
        notice: how large the runs are, and how many cells are still missing.
        paths: the files written.
    """

    tables: tuple[Table, Table]
    standings: Standings
    rates: Mapping[str, float]
    notice: str
    paths: tuple[Path, ...]

    def described(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "notice": self.notice,
            **self.standings.described(),
            "grid": dict(self.rates),
            "files": [str(path) for path in self.paths],
        }


def no_tuning(
    plan: NoTuningPlan, watch: Watch = lambda event: None, sharing: Sharing | None = None
) -> NoTuningResult:
    """A run of what has not finished yet; the tables are written anew after each cell that was run.

    Args and errors are those of `run_sweep`, with a plan in place of its jobs.
    """
    for data in plan.data:  # a missing data set is found out before the first run
        load_data(next(cell.recipe for cell in plan.cells if cell.data == data))
    done: list[CellScores] = []
    rates: dict[str, float] = {}
    for cell in plan.cells:
        news: list[Event] = []

        def listen(event: Event, news: list[Event] = news) -> None:
            if event.kind == "finished":
                news.append(event)
            watch(event)

        run_sweep(plan.first_jobs(cell), listen, sharing)
        rates[cell.key] = _best_rate(plan, cell)
        run_sweep(plan.grid_jobs(cell, rates[cell.key], cell.seeds), listen, sharing)
        done.append(_scores(plan, cell, rates[cell.key]))
        if news:
            _write(plan, done, rates)
    return _write(plan, done, rates)


def _best_rate(plan: NoTuningPlan, cell: TuningCell) -> float:
    """The grid's best by the accuracy at the end, on the first seed; the smaller one of equals."""

    def accuracy(rate: float) -> float:
        (job,) = plan.grid_jobs(cell, rate, cell.seeds[:1])
        return float(Scores.of([History.read(job.folder)]).final[0])

    rates: list[float] = sorted(evidence()["grid"])
    return max(rates, key=accuracy)


def _scores(plan: NoTuningPlan, cell: TuningCell, rate: float) -> CellScores:
    jobs: dict[str, list[Job]] = {name: [] for name in evidence()["contenders"]}
    for job in plan.first_jobs(cell):
        label = job.label.removeprefix(f"{cell.key} ")
        if label != GRID:
            jobs[label].append(job)
    jobs[GRID] = list(plan.grid_jobs(cell, rate, cell.seeds))
    return CellScores(
        cell.key,
        cell.title,
        1 / load_data(cell.recipe).classes,
        {name: Scores.of([History.read(job.folder) for job in own]) for name, own in jobs.items()},
    )


def _write(plan: NoTuningPlan, done: list[CellScores], rates: dict[str, float]) -> NoTuningResult:
    everything = evidence()
    titles = {name: rule.title for name, rule in RULES.items()}
    titles[GRID] = "FedHAW, best of a grid"
    standings = Standings(
        tuple(done),
        everything["subject"],
        everything["reference"],
        {name: titles[name] for name in everything["contenders"]},
    )
    notice, missing = plan.notice, len(plan.cells) - len(done)
    if missing:
        notice += f" {missing} of {len(plan.cells)} cells are still missing."
    grid = ", ".join(f"{rate:g}" for rate in everything["grid"])
    slow = ", ".join(
        f"{titles[name]} with at most {most} seeds because it is slow"
        for name, most in everything["most_seeds"].items()
    )
    notes = (
        f"Runs: {slow}; FedHAW's best of a grid has the eta_gamma of {grid} "
        "with the best test accuracy at the end on the cell's first seed, which is then counted "
        "as well: hindsight that no user has.",
    )
    cells, overall = standings.cell_table(notice, notes), standings.overall_table(notice, notes)
    which = "" if set(plan.data) == set(data_names()) else f"{'+'.join(plan.data)}-"
    paths = tuple(
        path
        for name, table in (("cells", cells), ("standings", overall))
        for path in write_table(plan.out / f"no-tuning-{which}{plan.size}-{name}", table)
    )
    return NoTuningResult((cells, overall), standings, dict(rates), notice, paths)

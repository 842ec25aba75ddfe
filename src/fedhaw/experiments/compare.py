"""Several rules on one federation, several seeds: same start, same split, same losses for all."""

from dataclasses import asdict, dataclass
from pathlib import Path

from fedhaw.errors import shown
from fedhaw.experiments.job import Job, Watch
from fedhaw.experiments.recipe import Recipe, RecipeError, RuleChoice
from fedhaw.experiments.sharing import Sharing
from fedhaw.experiments.sweep import run_sweep
from fedhaw.reports.comparison import Comparison, Group
from fedhaw.reports.comparison import load as load_comparison
from fedhaw.reports.metrics import ACCURACY, BYTES_DOWN, BYTES_UP, LOST, SERVER, TRAIN, Metric
from fedhaw.rules.registry import RULES, check_apart
from fedhaw.settings import SETTINGS

RUNS = "runs"


@dataclass(frozen=True)
class ComparePlan:
    """What is compared, and where its runs are kept.

    Attributes:
        recipe: the federation; its rule and seed are replaced.
        rules: the rules, each once.
        seeds: each once.
        out: folder of the comparison; run r, s is in `runs/<rule>/seed-<s>` below it.
    """

    recipe: Recipe
    rules: tuple[RuleChoice, ...]
    seeds: tuple[int, ...]
    out: Path

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if not names:
            raise RecipeError(f"There is no rule to compare; choose from {', '.join(RULES)}.")
        if twice := [name for name in names if names.count(name) > 1]:
            raise RecipeError(f"The rule {twice[0]} is named twice; name each one once.")
        check_apart(rule.entry for rule in self.rules)
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise RecipeError("Give at least one seed, and each one once.")

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All runs, seed by seed, so that every rule is seen early."""
        return tuple(
            Job(
                rule.entry.folder,
                self.recipe.with_(rule=asdict(rule), seed=seed),
                self.out / RUNS / rule.entry.folder / f"seed-{seed}",
            )
            for seed in self.seeds
            for rule in self.rules
        )


def compare(
    plan: ComparePlan, watch: Watch = lambda event: None, sharing: Sharing | None = None
) -> Comparison:
    """All runs of a plan, read back once those that have not finished yet are run.

    Args and errors are those of `run_sweep`, with a plan in place of its jobs.
    """
    run_sweep(plan.jobs, watch, sharing)
    return load_comparison([job.folder for job in plan.jobs])


def summary(
    plan: ComparePlan, comparison: Comparison, target: float | None = None
) -> dict[str, object]:
    """What a script wants to know, JSON-ready; values that do not exist are NaN.

    Args:
        plan: what was compared.
        comparison: its runs.
        target: the accuracy to reach, default `comparison.target()`.
    """
    if target is None:
        target = comparison.target()
    names = [group.rule for group in comparison.groups]
    return {
        "rules": {
            # Two rules of users' own may have one name, but not one label.
            group.label if names.count(group.rule) > 1 else group.rule: summary_of_rule(
                group, target
            )
            for group in comparison.groups
        },
        "settings": {
            **{k: v for k, v in plan.recipe.described().items() if k not in ("rule", "seed")},
            "rules": {
                job.recipe.rule.name: job.recipe.described()["rule"]["options"] for job in plan.jobs
            },
            "seeds": list(plan.seeds),
            "engine": plan.recipe.settings["engine"],
            "workers": plan.recipe.settings["workers"],
            "target_accuracy": target,
            "out": str(plan.out),
        },
    }


def parse_seeds(text: str) -> tuple[int, ...]:
    """`3` is the three seeds 0, 1 and 2; `0,4,5` are those, and `7,` is the one seed 7."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and parts[-1] == "":
        parts.pop()
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        raise RecipeError(
            f"--seeds is {shown(text)}; it must be how many, or a list such as 0,4,5."
        )
    if "," in text:
        seeds = [int(part) for part in parts]
        for seed in seeds:
            SETTINGS["seed"].checked(seed, "--seeds")
        if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
            raise RecipeError(f"--seeds names the seed {twice[0]} twice; name each one once.")
        return tuple(seeds)
    if not 1 <= int(parts[0]) <= 1000:
        raise RecipeError(
            f"--seeds is {shown(text)}; it must be from 1 to 1000, or a list such as 0,4,5 "
            f"(for the one seed {int(parts[0])}: --seeds {int(parts[0])},)."
        )
    return tuple(range(int(parts[0])))


def summary_of_rule(group: Group, target: float | None) -> dict[str, object]:
    """One rule's part of the summary."""
    final = group.final()
    reach = group.reach(target) if target is not None else None
    mean, std = group.per_round(ACCURACY)
    return {
        "accuracy": {"mean": final.mean, "std": final.std, "seeds": final.seeds},
        "accuracy_per_round": mean.tolist(),
        "accuracy_std_per_round": std.tolist(),
        "seconds_per_round": {"train": _mean(group, TRAIN), "aggregate": _mean(group, SERVER)},
        "lost_uploads": group.total(LOST).mean,
        "bytes": {"up": group.total(BYTES_UP).mean, "down": group.total(BYTES_DOWN).mean},
        "to_target": None
        if reach is None
        else {
            "seeds_that_reached_it": reach.reached,
            "rounds": reach.rounds.mean,
            "seconds": reach.seconds.mean,
        },
    }


def _mean(group: Group, metric: Metric) -> float:
    return group.mean(metric).mean

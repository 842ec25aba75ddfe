"""`fedhaw compare`: several rules on one federation, over several seeds."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedhaw.cli import options as flag
from fedhaw.cli.exits import interruptible
from fedhaw.rules.registry import DEFAULT, OF_THE_LETTER, UnknownRule, find
from fedhaw.settings import SETTINGS, SWEEP_SETTINGS

if TYPE_CHECKING:
    from fedhaw.experiments.compare import ComparePlan
    from fedhaw.experiments.recipe import Recipe, RuleChoice
    from fedhaw.reports import Comparison

EXAMPLES = flag.examples(
    "fedhaw compare",
    "fedhaw compare --rules fedavg,fedhaw --loss-rate 0.8 --seeds 3",
    "fedhaw compare --data mnist --data-dir data --alpha 0.1 --rounds 200 --out mnist-01",
    "fedhaw compare --data my-images.npz --model cnn --eta 0.05 --json",
    "fedhaw compare --rules fedavg,my_rule.py:MyRule --rule-option myrule.beta=0.5",
)

DEFAULT_RULES = ",".join((*OF_THE_LETTER, DEFAULT))


@flag.with_settings(*(name for name in SETTINGS if name != "seed"), *SWEEP_SETTINGS)
def compare(
    given: flag.Given,
    rules: Annotated[
        str,
        flag.option(
            "Rules by name, separated by commas; your own as package.module:Name or file.py:Name.",
            flag.FEDERATION,
            autocompletion=flag.complete_rules,
            show_default=True,
        ),
    ] = DEFAULT_RULES,
    rule_option: flag.RuleOptions = None,
    recipe: Annotated[
        Path | None,
        flag.option("A TOML file with the same settings; flags go before it.", flag.FEDERATION),
    ] = None,
    seeds: Annotated[
        str,
        flag.option(
            "How many seeds, counted from 0, or which: 0,4,5.", flag.TRAINING, show_default=True
        ),
    ] = "5",
    target: flag.Target = None,
    out: flag.Out = None,
    as_json: flag.Json = False,
    tensorboard: flag.Tensorboard = False,
) -> None:
    """Compare server rules on one federation, over several seeds.

    All rules start from the same model, on the same split, and lose the same uploads. With no
    arguments: seven rules on 5,000 real digits over ten clients, D_alpha 0.1, five seeds, in
    about a minute on two cores. Killed at any moment, the same command goes on where it stopped.
    """
    from fedhaw.cli.progress import watching
    from fedhaw.experiments.compare import ComparePlan, parse_seeds
    from fedhaw.experiments.compare import compare as run_all
    from fedhaw.reports.report import check_target

    sharing, given = flag.sharing_of(given)
    federation = flag.recipe_of(given, recipe)
    chosen = _rules(rules, rule_option or [], federation)
    numbers = parse_seeds(seeds)
    plan = ComparePlan(federation, chosen, numbers, out or _default_folder(federation))
    check_target(target)
    with watching(plan.jobs, plan.out, tensorboard) as watch:
        comparison = run_all(plan, watch, sharing)
    _report(plan, comparison, target, as_json)


def _report(
    plan: "ComparePlan", comparison: "Comparison", target: float | None, as_json: bool
) -> None:
    from fedhaw.cli.output import print_json, print_table, to_stderr
    from fedhaw.experiments.compare import summary
    from fedhaw.reports import comparison_table, write_report

    title = describe(plan.recipe)
    with interruptible(plan.out), to_stderr().status("Writing the report"):
        report = write_report(comparison, plan.out, title=title, target=target)
    if as_json:
        print_json(summary(plan, comparison, target))
        return
    print_table(comparison_table(comparison, target, title=title, brief=True))
    print(f"table    {plan.out / 'table.md'} (also .csv and .tex)")
    print(f"picture  {plan.out / 'figures' / 'accuracy.png'} (also .pdf)")
    print(f"report   {report.page}")


def _rules(text: str, given: list[str], federation: "Recipe") -> "tuple[RuleChoice, ...]":
    """The rules by name, each with the options given for it as `rule.key=value`."""
    from fedhaw.experiments.catalogue import parse_option
    from fedhaw.experiments.recipe import RuleChoice

    entries = [find(name.strip()) for name in text.split(",") if name.strip()]
    chosen: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for option in given:
        place, value = parse_option(option)
        rule, _, key = place.rpartition(".")
        meant = [entry for entry in entries if rule in (entry.name, entry.key)]
        if len(meant) != 1:
            example = (meant or entries or [find("fedhaw")])[0]
            raise UnknownRule(
                f"--rule-option {option} must begin with one of the compared rules and a dot, such "
                f"as {example.key if meant else example.name}.{key or place}=..."
            )
        chosen[meant[0].key][key] = value
    for entry in entries:  # refuse it before any run
        federation.with_(rule={"name": entry.key, "options": chosen[entry.key]})
    return tuple(RuleChoice(name=entry.key, options=chosen[entry.key]) for entry in entries)


def _default_folder(federation: "Recipe") -> Path:
    """A name made of the settings: the same command finds its runs again, another its own place.

    Rules and seeds are not in it, so that a comparison can be widened without running again.
    """
    plain = federation.with_(rule="fedavg", seed=0)
    data = Path(str(federation.settings["data"])).stem
    return Path("fedhaw-runs") / f"compare-{data}-{plain.fingerprint()[:8]}"


def describe(recipe: "Recipe") -> str:
    """The federation in a line."""
    said = recipe.settings
    parts = [Path(str(said["data"])).name]
    if said["clients"] is not None:
        parts.append(f"{said['clients']} clients")
    if said["split"] in ("letter", "dirichlet"):
        parts.append(f"D_alpha {said['alpha']:g}")
    if said["loss_rate"]:
        parts.append(f"p_e = {said['loss_rate']:g}")
    parts.append(f"{said['rounds']} rounds of {said['client_update']}, eta {said['eta']:g}")
    return ", ".join(parts)

"""`fedhaw run`: one federation, every option, from flags or a TOML file."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhaw.cli import options as flag
from fedhaw.cli.compare import describe, how_to_go_on
from fedhaw.cli.exits import interruptible

if TYPE_CHECKING:
    from fedhaw.experiments.sweep import Job
    from fedhaw.reports import Comparison

EXAMPLES = """Examples:

  fedhaw run --rule fedhaw --rounds 100

  fedhaw run recipe.toml --seed 3 --out run-3

  fedhaw run --rule fedlws --rule-option beta=0.03 --rule-option clip=[0.01,0.2]

  fedhaw run --rule my_rule.py:MyRule --rule-option beta=0.5

  fedhaw run --clients 100 --cohort 10 --uplink bursty --loss-rate 0.3 --burst 5
"""


def _option(text: str, panel: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel=panel, show_default=False, **more)


def run(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A TOML file; flags go before what it says.", show_default=False),
    ] = None,
    data: flag.Data = None,
    data_dir: flag.DataDir = None,
    train_samples: Annotated[
        int | None, _option("Use only the first so many training samples.", flag.FEDERATION)
    ] = None,
    split: flag.Split = None,
    split_seed: Annotated[
        int | None, _option("Of the split. Default the letter's 1, else 0.", flag.FEDERATION)
    ] = None,
    alpha: flag.Alpha = None,
    clients: flag.Clients = None,
    min_size: Annotated[
        int | None,
        _option("Fewest samples of a client, for --split dirichlet. Default 10.", flag.FEDERATION),
    ] = None,
    shards_per_client: Annotated[
        int | None, _option("For --split shards. Default 2.", flag.FEDERATION)
    ] = None,
    noisy_clients: Annotated[
        int | None, _option("How many clients hold random labels. Default 0.", flag.FEDERATION)
    ] = None,
    cohort: flag.Cohort = None,
    rule: Annotated[
        str | None,
        _option(
            "The server rule, or your own, file.py:Name. Default fedhaw-auto.",
            flag.FEDERATION,
            autocompletion=flag.complete_rules,
        ),
    ] = None,
    rule_option: flag.RuleOptions = None,
    loss_rate: flag.LossRate = None,
    uplink: Annotated[
        str | None,
        _option("letter (the default), bursty, or a trace FILE.csv.", flag.FEDERATION),
    ] = None,
    burst: Annotated[
        float | None, _option("Mean rounds of a burst, for bursty. Default 3.", flag.FEDERATION)
    ] = None,
    stand_in: Annotated[
        str | None,
        _option("For a lost upload: global (the default), last or none.", flag.FEDERATION),
    ] = None,
    length_limit: Annotated[
        float | None,
        _option(
            "How many times as long as usual an update may be; 0: any. Default 10.", flag.FEDERATION
        ),
    ] = None,
    model: flag.Model = None,
    buffers: Annotated[
        str | None, _option("Batch norm: batch (the default) or average.", flag.TRAINING)
    ] = None,
    input_scale: Annotated[
        str | None, _option("Pixels: matched (the default) or authors.", flag.TRAINING)
    ] = None,
    also_scales: Annotated[
        list[str] | None,
        _option("Also record the accuracy on this input scale.", flag.TRAINING),
    ] = None,
    rounds: flag.Rounds = None,
    epochs: flag.Epochs = None,
    batch: flag.Batch = None,
    eta: flag.Eta = None,
    client_update: flag.ClientUpdate = None,
    mu: Annotated[
        float | None, _option("FedProx's coefficient. Default 1e-3.", flag.TRAINING)
    ] = None,
    weight_decay: Annotated[
        float | None, _option("In place of the client update's own.", flag.TRAINING)
    ] = None,
    evaluate_every: Annotated[
        int | None, _option("Rounds between two evaluations. Default 1.", flag.TRAINING)
    ] = None,
    per_client_accuracy: flag.PerClientAccuracy = None,
    seed: Annotated[
        int | None, _option("Of everything random but the split. Default 0.", flag.TRAINING)
    ] = None,
    engine: flag.Engine = None,
    workers: flag.Workers = None,
    device: flag.Device = None,
    deadline: Annotated[
        float | None, _option("Seconds after which a client's model is too late.", flag.MACHINE)
    ] = None,
    checkpoint_every: Annotated[
        int | None, _option("Rounds between two checkpoints. Default 10.", flag.MACHINE)
    ] = None,
    out: flag.Out = None,
    as_json: flag.Json = False,
    tensorboard: flag.Tensorboard = False,
) -> None:
    """Run one federation. Killed at any moment, the same command goes on where it stopped."""
    from fedhaw.experiments.catalogue import parse_option
    from fedhaw.experiments.recipe import read_recipe_values
    from fedhaw.experiments.sweep import Job

    flags = {
        "data": data, "data_dir": data_dir, "train_samples": train_samples, "split": split,
        "split_seed": split_seed, "alpha": alpha, "clients": clients, "min_size": min_size,
        "shards_per_client": shards_per_client, "noisy_clients": noisy_clients,
        "cohort": cohort, "loss_rate": loss_rate,
        "uplink": uplink, "burst": burst, "stand_in": stand_in,
        "length_limit": length_limit, "model": model,
        "buffers": buffers, "input_scale": input_scale, "also_scales": also_scales,
        "rounds": rounds, "epochs": epochs, "batch": batch, "eta": eta,
        "client_update": client_update, "mu": mu, "weight_decay": weight_decay,
        "evaluate_every": evaluate_every, "per_client_accuracy": per_client_accuracy,
        "seed": seed, "engine": engine, "workers": workers,
        "device": device, "deadline": deadline, "checkpoint_every": checkpoint_every,
    }  # fmt: skip
    options = dict(parse_option(option) for option in rule_option or [])
    chosen: dict[str, object] | None = None
    if rule is not None:
        chosen = {"name": rule, "options": options}
    elif options:
        chosen = _with_options(read_recipe_values(recipe) if recipe else {}, options)
    federation = flag.recipe_of(flags, recipe, chosen)
    label = federation.rule.entry.folder
    name = f"run-{label}-{Path(federation.data).stem}"
    folder = out or Path("fedhaw-runs") / f"{name}-{federation.fingerprint()[:8]}"
    job = Job(label, federation, folder)
    comparison = _run(job, tensorboard)
    _tell(job, comparison, as_json)


def _with_options(file: dict[str, Any], options: dict[str, object]) -> dict[str, object]:
    """The file's rule with options of the command line put before its own."""
    from fedhaw.experiments.recipe import RuleChoice

    stated = file.get("rule", RuleChoice().name)
    if not isinstance(stated, dict):
        return {"name": stated, "options": options}
    return {**stated, "options": {**stated.get("options", {}), **options}}


def _run(job: "Job", tensorboard: bool) -> "Comparison":
    from fedhaw.cli.output import to_stderr
    from fedhaw.cli.progress import SweepProgress
    from fedhaw.experiments.sweep import also_to_tensorboard, run_sweep
    from fedhaw.reports import load

    with ExitStack() as stack:
        stack.enter_context(interruptible(how_to_go_on(job.folder)))
        watch: Any = stack.enter_context(SweepProgress([job], to_stderr()))
        if tensorboard:
            watch = stack.enter_context(also_to_tensorboard(job.folder / "tensorboard", watch))
        run_sweep([job], watch)
        return load([job.folder])


def _tell(job: "Job", comparison: "Comparison", as_json: bool) -> None:
    from fedhaw.cli.output import print_json, print_table
    from fedhaw.experiments.compare import summary_of_rule
    from fedhaw.history import history_in
    from fedhaw.reports import comparison_table

    group = comparison.groups[0]
    if as_json:
        described = summary_of_rule(group, comparison.target())
        settings = {**job.recipe.described(), "out": str(job.folder)}
        print_json({"rules": {group.rule: described}, "settings": settings})
        return
    print_table(comparison_table(comparison, title=describe(job.recipe), brief=True))
    print(f"history  {history_in(job.folder)}")
    print(f"report   run: fedhaw report {job.folder}")

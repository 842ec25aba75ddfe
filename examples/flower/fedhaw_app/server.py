"""The ServerApp: the recipe's rule, evaluated on the server's own test samples."""

from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedhaw.experiments import Recipe
from fedhaw.experiments.running import rule_of
from fedhaw.flower import FlowerError, RuleStrategy
from fedhaw.flower.client import to_arrays, to_vector
from fedhaw.models import Evaluator
from fedhaw.simulation import Federation
from fedhaw_app.federation import federation_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation; one that was interrupted in the same folder goes on."""
    config = context.run_config
    recipe, federation = federation_of(context)
    settings, layout = federation.settings, federation.layout
    (x,), y = federation.x_test.values(), federation.y_test
    evaluator = Evaluator(federation.module, layout)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({**evaluator(to_vector(layout, arrays), x, y)})

    out = Path(str(config["out"])) if config["out"] else None
    if out is not None and not out.is_absolute():
        raise FlowerError(f"out is {out}; give an absolute folder on the server.")
    names = {f"client-{k}": str(k) for k in range(federation.clients)}
    cohort = settings["cohort"] or federation.clients
    strategy = RuleStrategy(
        rule_of(recipe, federation),
        client_update=federation.client_update,
        fraction_train=cohort / federation.clients,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=1,
        nodes_at_start=federation.clients,
        round_deadline=float(config["round-deadline"]),
        late_rounds=int(config["late-rounds"]),
        nodes_timeout=float(config["nodes-timeout"]),
        seed=settings["seed"],
        roll_call=cohort < federation.clients,
        uplink=federation.uplink,
        node_clients=names if config["registered-only"] else None,
        checkpoint=out and out / "checkpoint.safetensors",
        resume_from=None if int(config["resume-from"]) < 0 else int(config["resume-from"]),
        history=out and out / "history.jsonl",
        description=describe(recipe, federation),
    )
    result = strategy.start(
        grid,
        to_arrays(layout, federation.initial_model),
        num_rounds=settings["rounds"],
        evaluate_fn=evaluate,
    )
    final = result.evaluate_metrics_serverapp.get(settings["rounds"])
    if final is not None:
        print(f"Accuracy after round {settings['rounds']}: {final['accuracy']:.4f}")


def describe(recipe: Recipe, federation: Federation) -> dict[str, Any]:
    """What the history says about the run, for `fedhaw report`."""
    clients = {
        str(k): {"examples": int(size), "labels": row.tolist()}
        for k, (size, row) in enumerate(zip(federation.sizes, federation.labels, strict=True))
    }
    return {"name": recipe.rule.name, "config": recipe.described(), "clients": clients}

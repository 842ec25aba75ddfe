"""The ServerApp: the recipe's rule, evaluated on the server's own test samples."""

from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from torch.nn.functional import cross_entropy

from fedhaw.data import label_counts, proxy_split, scaled_part
from fedhaw.experiments.federation import (
    load_data,
    rule_from_recipe,
    training_data,
    uplink_from_recipe,
)
from fedhaw.experiments.recipe import Recipe
from fedhaw.flower import FlowerError, RuleStrategy
from fedhaw.flower.client import to_arrays, to_vector
from fedhaw.models import Evaluator, Layout, proxy_loss
from fedhaw_app.federation import module_of, recipe_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation; one that was interrupted in the same folder goes on."""
    config, recipe = context.run_config, recipe_of(context)
    dataset = load_data(recipe)
    module = module_of(recipe)
    layout = Layout.of(module, recipe.buffers)
    x = torch.from_numpy(scaled_part(dataset, "test", recipe.input_scale))
    y = torch.from_numpy(dataset.y_test)
    proxy, rest = (torch.from_numpy(p) for p in proxy_split(len(y), dataset.classes))
    losses = proxy_loss(module, cross_entropy, x[proxy], y[proxy], layout=layout)
    x, y = x[rest], y[rest]
    evaluator = Evaluator(module, layout)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({**evaluator(to_vector(layout, arrays), x, y)})

    out = Path(str(config["out"])) if config["out"] else None
    if out is not None and not out.is_absolute():
        raise FlowerError(f"out is {out}; give an absolute folder on the server.")
    names = {f"client-{k}": str(k) for k in range(recipe.clients)}
    strategy = RuleStrategy(
        rule_from_recipe(recipe, losses),
        fraction_train=(recipe.cohort or recipe.clients) / recipe.clients,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=1,
        nodes_at_start=recipe.clients,
        round_deadline=float(config["round-deadline"]),
        nodes_timeout=float(config["nodes-timeout"]),
        seed=recipe.seed,
        uplink=uplink_from_recipe(recipe),
        node_clients=names if config["registered-only"] else None,
        checkpoint=out and out / "checkpoint.safetensors",
        resume_from=None if int(config["resume-from"]) < 0 else int(config["resume-from"]),
        history=out and out / "history.jsonl",
        description=describe(recipe),
    )
    result = strategy.start(
        grid,
        to_arrays(layout, layout.flatten(module)),
        num_rounds=recipe.rounds,
        evaluate_fn=evaluate,
    )
    final = result.evaluate_metrics_serverapp.get(recipe.rounds)
    if final is not None:
        print(f"Accuracy after round {recipe.rounds}: {final['accuracy']:.4f}")


def describe(recipe: Recipe) -> dict[str, Any]:
    """What the history says about the run, for `fedhaw report`."""
    dataset, parts = training_data(recipe)
    counts = label_counts(dataset.y_train, parts, dataset.classes)
    clients = {
        str(k): {"examples": len(part), "labels": row.tolist()}
        for k, (part, row) in enumerate(zip(parts, counts, strict=True))
    }
    return {"name": recipe.rule.name, "config": recipe.described(), "clients": clients}

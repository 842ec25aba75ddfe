"""The ClientApp: client k trains on the k-th part of the data."""

import torch
from flwr.app import Context

from fedhaw.data import scaled_part
from fedhaw.experiments.federation import training_data
from fedhaw.flower import FlowerError
from fedhaw.flower.client import Participant, client_app
from fedhaw_app.federation import module_of, recipe_of, update_of


def participant(context: Context) -> Participant:
    """The client of this node, which `--node-config "partition-id=K"` numbers."""
    recipe = recipe_of(context)
    k = int(context.node_config.get("partition-id", -1))
    if not 0 <= k < recipe.clients:
        raise FlowerError(
            f"The recipe's clients are 0 to {recipe.clients - 1}; start the SuperNode with "
            f'--node-config "partition-id=K" for one of them.'
        )
    dataset, parts = training_data(recipe)
    part = parts[k]
    return Participant(
        client=k,
        module=module_of(recipe),
        update=update_of(recipe),
        x=torch.from_numpy(scaled_part(dataset, "train", recipe.input_scale)[part]),
        y=torch.from_numpy(dataset.y_train[part]),
        buffers=recipe.buffers,
        seed=recipe.seed,
        device=recipe.device,
    )


app = client_app(participant)

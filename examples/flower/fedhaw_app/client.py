"""The ClientApp: client k trains on the k-th part of the data."""

from flwr.app import Context

from fedhaw.flower import FlowerError
from fedhaw.flower.client import Participant, client_app
from fedhaw_app.federation import federation_of


def participant(context: Context) -> Participant:
    """The client of this node, which `--node-config "partition-id=K"` numbers."""
    _, federation = federation_of(context)
    k = int(context.node_config.get("partition-id", -1))
    if not 0 <= k < federation.clients:
        raise FlowerError(
            f"The recipe's clients are 0 to {federation.clients - 1}; start the SuperNode with "
            f'--node-config "partition-id=K" for one of them.'
        )
    x, y = federation.training_samples()
    rows = federation.holdings.rows_of(k)
    return Participant(
        client=k,
        module=federation.module,
        client_update=federation.client_update,
        x=x[rows],
        y=y[rows],
        buffers=federation.settings["buffers"],
        seed=federation.settings["seed"],
        device=str(federation.device),
    )


app = client_app(participant)

# %% [markdown]
# # To a deployment
#
# Outgrowing one machine means [Flower](https://flower.ai): it runs clients on real machines, behind
# real links. The rule stays the same object; what changes is who carries the models.
#
# ## The client
#
# A Flower client is an app that answers messages. `client_app` makes one from what a simulation has
# too: a module, a client update, samples. Here client k takes the k-th part of a data set; in the field
# it would load what it holds.

# %%
import logging
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from flwr.app import Context, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.flower.client import Participant, client_app, to_arrays, to_vector
from fedhaw.models import Evaluator
from fedhaw.settings import fill
from fedhaw.simulation import Federation, run

logging.getLogger("flwr").setLevel(logging.WARNING)  # it tells of every step otherwise

federation = Federation.prepare(
    fill({"data": "mnist-5k", "train_samples": 1500, "clients": 3, "alpha": 1.0, "rounds": 6})
)


def participant(context):
    k = int(context.node_config["partition-id"])
    x, y = federation.training_samples()
    mine = federation.holdings.rows_of(k)
    return Participant(k, federation.module, federation.client_update, x[mine], y[mine])


clients = client_app(participant)

# %% [markdown]
# ## The server
#
# In a ServerApp, `RuleStrategy` stands where Flower's `FedAvg` stood. That is the whole change:
#
# ```python
# strategy = RuleStrategy(fedhaw.FedHAWAuto())
# result = strategy.start(grid, initial_arrays=arrays, num_rounds=10)
# ```
#
# A deployment needs a SuperLink and SuperNodes, which are programs of their own
# ([how to start them](../flower.md)). In a notebook, a grid that hands every message to the client app
# at once will do: the same strategy, the same client app and the same messages, without a network.


# %%
class NotebookGrid(Grid):
    """Flower's grid in one process: node k + 1 is client k, and node `mute` falls silent."""

    def __init__(self, mute=None, after=0):
        self.mute, self.after, self.sent, self.replies = mute, after, 0, {}

    def get_nodes(self):
        return [SimpleNamespace(node_id=k + 1, name="") for k in range(federation.clients)]

    def get_node_ids(self):
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages):
        names = []
        for message in messages:
            self.sent += 1
            name = message.metadata.__dict__["_message_id"] = f"message {self.sent}"
            node = message.metadata.dst_node_id
            context = Context(1, node, {"partition-id": node - 1}, RecordDict(), {})
            if node != self.mute or self.sent <= self.after:
                self.replies[name] = clients(message, context)
            names.append(name)
        return names

    def pull_messages(self, message_ids):
        return [self.replies.pop(name) for name in message_ids if name in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def set_run(self, run):
        raise NotImplementedError

    run = property(set_run)


# Messages can only be made within a run, which Flower would number.
TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1

evaluator = Evaluator(federation.module, federation.layout)
(x_test,), y_test = federation.x_test.values(), federation.y_test


def evaluate(server_round, arrays):
    """What the server measures after each round, on samples of its own."""
    return MetricRecord({**evaluator(to_vector(federation.layout, arrays), x_test, y_test)})


def deploy(grid, folder):
    strategy = RuleStrategy(
        fedhaw.FedHAWAuto(),
        fraction_evaluate=0.0,
        round_deadline=0.5,  # seconds; give more than your slowest client needs
        history=folder / "history.jsonl",
        checkpoint=folder / "checkpoint.safetensors",
    )
    first = to_arrays(federation.layout, federation.initial_model)
    result = strategy.start(grid, first, num_rounds=6, evaluate_fn=evaluate)
    return to_vector(federation.layout, result.arrays).numpy()


# %% [markdown]
# ## The same as simulated?
#
# A client's randomness depends on seed, client and round, in the field as in the simulator. So the
# deployed run and the simulated one end with the same model, to float32 accuracy:

# %%
deployed = deploy(NotebookGrid(), Path(tempfile.mkdtemp()))
simulated = run(federation, fedhaw.FedHAWAuto())
print(f"largest difference: {np.abs(deployed - simulated.model).max():.1e}")

# %% [markdown]
# ## When a client dies
#
# Now node 2 loses its power after the second round. Nothing ends: the server waits for the deadline,
# names the client, and goes on. The history is of the same kind as a simulation's:

# %%
folder = Path(tempfile.mkdtemp())
deploy(NotebookGrid(mute=2, after=6), folder)
history = fedhaw.History.read(folder)
history

# %%
history.to_pandas(by="client")[["weight", "lost"]].tail(6)

# %% [markdown]
# The folder also holds a checkpoint of every round: if the *server* dies, starting the same app again
# goes on with the next round.
#
# From here, [the Flower page](../flower.md) starts real SuperLinks and SuperNodes, with TLS and
# registered clients, and lists what happens to each kind of failure; `examples/flower` is an app that
# runs any recipe.

# %% [markdown]
# # Lost clients and resume
#
# ## When links fail
#
# In the letter's uplink every client has a loss probability of its own, up to `loss_rate`. The server
# puts the model it sent out in the place of a lost one, which slows the whole federation down.
# FedHAW-auto remembers a lost client's last update instead, and replays it, fading.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import fedhaw

rules = {"FedAvg": fedhaw.FedAvg(), "FedHAW-auto": fedhaw.FedHAWAuto()}
histories = {
    name: fedhaw.simulate(rule, "mnist-5k", loss_rate=0.9, rounds=25, name=name)
    for name, rule in rules.items()
}
histories["FedHAW-auto"]

# %% [markdown]
# The blue bars count the uploads lost in a round; they are the same for both rules. Losses in bursts,
# losses from a trace, and losses of your own are [one argument away](../how-to/own-uplink.md).
#
# ## A history in pandas
#
# A row a round:

# %%
frame = histories["FedHAW-auto"].to_pandas()
frame[["accuracy", "loss", "lost", "bytes/up"]].tail(3).round(3)

# %% [markdown]
# or a row for each round and client, which answers questions such as: who was lost how often, and how
# much did it still count?

# %%
by_client = histories["FedHAW-auto"].to_pandas(by="client")
by_client.groupby("client").agg(
    asked=("weight", "size"), lost=("lost", "count"), weight=("weight", "mean")
).round(3)

# %%
figure, axes = plt.subplots(figsize=(6, 3.2))
for name, history in histories.items():
    history.to_pandas()["accuracy"].rolling(3, min_periods=1).mean().plot(ax=axes, label=name)
axes.set(xlabel="round", ylabel="accuracy, mean of three rounds")
axes.legend()
plt.show()

# %% [markdown]
# ## When the machine fails
#
# With `out`, a run writes its history line by line and a checkpoint now and then. Here the machine
# fails in round 12, in the shape of an exception:

# %%
folder = Path(tempfile.mkdtemp()) / "run"
settings = {"loss_rate": 0.9, "rounds": 25, "out": folder, "checkpoint_every": 5}


def power_cut(record):
    if record.round == 12:
        raise RuntimeError("somebody pulled the plug")


try:
    fedhaw.simulate(fedhaw.FedHAWAuto(), "mnist-5k", on_round=power_cut, **settings)
except RuntimeError as error:
    print(error)
len(fedhaw.History.read(folder).records)

# %% [markdown]
# The same call again goes on from the last checkpoint. Everything random depends on (seed, round,
# client) only, so the run ends with exactly the numbers of the one above that was never interrupted:

# %%
resumed = fedhaw.simulate(fedhaw.FedHAWAuto(), "mnist-5k", **settings)
(resumed.model == histories["FedHAW-auto"].model).all()

# %% [markdown]
# A call with more rounds lengthens a finished run. A call with another `alpha` is refused, and says
# what differs:

# %%
try:
    fedhaw.simulate(fedhaw.FedHAWAuto(), "mnist-5k", alpha=1.0, **settings)
except fedhaw.FedhawError as error:
    print(error)

# %% [markdown]
# Next: [to a deployment](to-flower.py).

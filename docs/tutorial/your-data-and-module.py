# %% [markdown]
# # Your data, your module
#
# ## Arrays you have
#
# A data set is arrays: samples, labels, and, where that is known, who holds which sample. Here it is
# 1,797 digits of 8 x 8 pixels that come with scikit-learn, and five people who each wrote mostly two
# of the ten digits.

# %%
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import fedhaw
from fedhaw import data

digits = load_digits()
x, y = digits.images / 8.0 - 1.0, digits.target  # (1797, 8, 8) in -1..1, (1797,)
random = np.random.default_rng(0)
holders = np.where(random.random(len(y)) < 0.3, random.integers(0, 5, len(y)), y // 2)

mine = data.from_table(x, y, "my digits", holders=holders)
mine.x_train.shape, mine.x_test.shape, mine.classes

# %% [markdown]
# `from_table` sets a fifth of every class aside for testing; `from_arrays` takes a test set you have.
# Anything that does not fit is told in a sentence:

# %%
try:
    data.from_table(x, y.astype(float) + 0.5, "my digits")
except fedhaw.FedhawError as error:
    print(error)

# %% [markdown]
# Who holds what, as a picture:

# %%
import matplotlib.pyplot as plt

counts = data.label_counts(mine.y_train, data.split(mine, "holders"), mine.classes)
plt.figure(figsize=(6, 2.6))
plt.imshow(counts, cmap="Blues", aspect="auto")
plt.xlabel("digit")
plt.ylabel("client")
plt.colorbar(label="samples")
plt.show()

# %% [markdown]
# ## A network you wrote
#
# Any torch module with float32 parameters will do. All trainable parameters travel, as one flat
# vector; what you freeze (`requires_grad_(False)`) stays at home and no rule can touch it.


# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU())
        self.decide = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        return self.decide(self.see(x).flatten(1))


def run(rule):
    return fedhaw.simulate(
        rule, mine, split="holders", model=Net, eta=0.05, batch=16, rounds=15, seed=1
    )


average, auto = run(fedhaw.FedAvg()), run(fedhaw.FedHAWAuto())
print(f"{auto.run.parameters} parameters")
print(f"FedAvg {100 * average.accuracy[-1]:.1f} %, FedHAW-auto {100 * auto.accuracy[-1]:.1f} %")

# %% [markdown]
# `model=Net` makes the network with torch seeded by `seed`; `model=Net()` takes the values it has, for
# instance pre-trained ones. The trained model comes back as a flat vector, and `Layout` knows where
# each parameter lies in it:

# %%
from fedhaw.models import Layout

net = Net()
for entry in Layout.of(net).entries:
    values = torch.from_numpy(auto.model[entry.start : entry.stop]).reshape(entry.shape)
    net.get_parameter(entry.name).data.copy_(values)

with torch.no_grad():
    guess = net(torch.from_numpy(mine.x_test).reshape(-1, 1, 8, 8)).argmax(1).numpy()
print(f"{100 * (guess == mine.y_test).mean():.1f} % of all test samples")

# %% [markdown]
# Next: [lost clients and resume](lost-clients.py).

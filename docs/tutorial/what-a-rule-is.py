# %% [markdown]
# # What a rule is
#
# In federated learning the data stay where they are. A server sends a model to its clients, each
# client trains it on its own samples, and what comes back is not data but models. Then the server has
# K models and needs one. How it makes one out of K is its *aggregation rule*, and it is all that this
# library is about.
#
# ## A federation one can see
#
# Two clients, and models that are points in a plane. Each client wants to go somewhere else; a round
# of training moves its model a fifth of the way from where the server stands to where it wants to be.

# %%
import matplotlib.pyplot as plt
import numpy as np

import fedhaw

targets = np.array([[4.0, 1.0], [1.0, 3.0]])  # where each client would end alone
examples = [30, 10]  # the first has three times as many samples


def train(w):
    """(K, 2) what the clients send back when the server sends out w."""
    return w + 0.2 * (targets - w)


# %% [markdown]
# A rule is two functions. `init()` gives what it remembers before the first round; `aggregate` takes
# that memory and a `Round`, and returns the next model and the next memory. Nothing else is changed
# anywhere, so a rule can be tried, saved and repeated at any point.


# %%
def path(rule, rounds=30):
    """(rounds + 1, 2) where the server's model went."""
    w, state = np.zeros(2), rule.init()
    places = [w]
    for _ in range(rounds):
        w, state = rule.aggregate(state, fedhaw.Round(w, train(w), num_examples=examples))
        places.append(w)
    return np.array(places), state


average, _ = path(fedhaw.FedAvg())
average[-1]

# %% [markdown]
# FedAvg weighs every client by its share of the samples, three quarters and one quarter, and ends at
# the point between the two targets that divides their distance in that way. FedHAW starts with the
# same weights, and a scale of 1, and then improves both: after each round it asks in which direction
# they should have been different for the last step to have been better, and moves them a little.

# %%
learnt, state = path(fedhaw.FedHAW(eta=0.2, eta_gamma=1e-2, eta_lambda=1e-1))
state.metrics, state.weights

# %%
figure, axes = plt.subplots(figsize=(6, 4))
for places, name in ((average, "FedAvg"), (learnt, "FedHAW")):
    axes.plot(*places.T, marker="o", markersize=3, label=name)
axes.plot(*targets.T, "k*", markersize=12)
axes.set(xlabel="first number of the model", ylabel="second number")
axes.legend()
plt.show()

# %% [markdown]
# As long as all steps point the same way a scale above 1 pays, so FedHAW is there first. It even runs
# past the point, learns so from the models that come back, and returns. With two numbers there is little
# more to gain; with a network there is.
#
# ## A real one
#
# `fedhaw.simulate` does the same with a network of 118,282 numbers, real digits, and clients that hold
# very different ones. Who holds what:

# %%
history = fedhaw.simulate(fedhaw.FedAvg(), "mnist-5k", clients=10, alpha=0.1, rounds=25)
history.label_counts  # a row a client, a column a digit

# %% [markdown]
# Small `alpha` means uneven: most clients know two or three digits well and the others hardly at all.
# A history draws itself:

# %%
history

# %% [markdown]
# Now the same federation under FedHAW, with the letter's learning rates, and under FedHAW-auto, which
# has none. The seed is the same, so all three begin with the same model and see the same batches.

# %%
histories = {
    "FedAvg": history,
    "FedHAW": fedhaw.simulate(fedhaw.FedHAW(eta=1e-2, eta_gamma=1e-3, eta_lambda=1e-2), rounds=25),
    "FedHAW-auto": fedhaw.simulate(fedhaw.FedHAWAuto(), rounds=25),
}
figure, axes = plt.subplots(figsize=(6, 3.5))
for name, run in histories.items():
    axes.plot(run.rounds + 1, 100 * run.accuracy, label=name)
axes.set(xlabel="round", ylabel="test accuracy (%)")
axes.legend()
plt.show()

# %% [markdown]
# One seed of one federation proves nothing; [the evidence](../evidence/README.md) has many. What FedHAW
# learnt on the way is in the history, under the names the rule gave:

# %%
histories["FedHAW"].metrics["gamma"][[0, 5, 10, 24]].round(4)

# %% [markdown]
# exp(gamma) is the scale. Next: [a rule of your own](your-own-rule.py).

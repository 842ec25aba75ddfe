# %% [markdown]
# # A rule of your own
#
# The server's next model need not be the average. Suppose you believe that the mean update points in
# the right direction but is too short, because clients that pull in different directions cancel each
# other. So go further along it:
#
# $$w(t+1) = w(t) + s \sum_k p_k (w_k - w(t)), \qquad p_k = N_k / N$$
#
# Fifteen lines:

# %%
from dataclasses import dataclass

import fedhaw
from fedhaw.rules.fedavg import FedAvgState
from fedhaw.rules.passes import combine_updates


@dataclass(frozen=True)
class LongStep:
    step: float = 2.0

    def init(self):
        return FedAvgState()

    def aggregate(self, state, current):
        if current.nothing_arrived:
            return current.global_model, state
        mean = combine_updates(current.shares, current.global_model, current.client_models)
        model = current.global_model + self.step * mean
        return model, FedAvgState(current.clients, current.shares)


# %% [markdown]
# - The hyper-parameters are the fields of a frozen dataclass; on the command line they are options.
# - `current` is the round: `global_model` (P,), `client_models` (K, P), `shares` (K,), `names`,
#   `arrived`. It has been checked before your rule sees it.
# - The state is what the rule remembers. This one remembers nothing but who took part, as FedAvg does,
#   so it borrows FedAvg's; a state of your own is another frozen dataclass, as in
#   [examples/own_rule.py](../../examples/own_rule.py).
# - `combine_updates` reads the K x P matrix once, block by block, on NumPy and torch alike.
#
# Does it help?

# %%
rules = {"FedAvg": fedhaw.FedAvg(), "step 2": LongStep(2.0), "step 3": LongStep(3.0)}
histories = {
    name: fedhaw.simulate(rule, "mnist-5k", rounds=20, name=name) for name, rule in rules.items()
}
for name, history in histories.items():
    print(f"{name:8} {100 * history.accuracy[-1]:.1f} %")

# %% [markdown]
# A longer step can be faster, and too long a step overshoots; which is which depends on the federation,
# and nobody knows it beforehand. That is what rules that learn their coefficients are for. A table with
# more to it, such as the rounds it took to reach a target:

# %%
from fedhaw.reports import compare, comparison_table, to_text

print(to_text(comparison_table(compare(list(histories.values())), brief=True)))

# %% [markdown]
# Whether it still helps where uploads get lost, at another client rate, or over other seeds is a
# question for the command line, which runs them all and writes a report. Save the class in a file and
# name it by its place:
#
# ```sh
# fedhaw compare --rules fedavg,long_step.py:LongStep --rule-option longstep.step=2 --loss-rate 0.5
# ```
#
# [Adding a rule](../adding-a-rule.md) tells the rest: what is checked for you, what a state may hold,
# and how a rule becomes part of fedhaw. If your formula has coefficients that should be learnt, write
# it in torch and let [a hypergradient rule](../rules/hypergradient.md) learn them.
#
# Next: [your data, your module](your-data-and-module.py).

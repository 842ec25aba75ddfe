"""A rule of your own, beside FedAvg: every client speaks equally loudly.

A client that trains on much data, or at a high rate, moves far and drags the average after it. Here
each update is brought to the round's median length L before it counts:

    w(t+1) = w + L sum_k p_k g_k / |g_k|,        g_k = w_k - w,  p_k = N_k / N

`fedhaw compare --rules fedavg,examples/own_rule.py:EqualVoice` does the same with a report.
"""

from dataclasses import dataclass, field

import numpy as np

import fedhaw
from fedhaw.rules.base import Array, Client, Metrics, Vector
from fedhaw.rules.passes import combine_updates, update_products


@dataclass(frozen=True)
class EqualVoiceState:
    """What is known after a round: who took part, how they counted, how long updates were."""

    median_length: float = 0.0
    clients: tuple[Client, ...] = ()
    weights: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def metrics(self) -> Metrics:
        """What histories and reports show of it."""
        return {"median length": self.median_length}


@dataclass(frozen=True)
class EqualVoice:
    """Updates of one length."""

    def init(self) -> EqualVoiceState:
        return EqualVoiceState()

    def aggregate(
        self, state: EqualVoiceState, current: fedhaw.Round
    ) -> tuple[Array, EqualVoiceState]:
        w, W, p = current.global_model, current.client_models, current.shares
        _, squares = update_products(w, W, p)  # |g_k|^2; 0 for a lost upload
        lengths = np.sqrt(squares)
        if not lengths.any():
            return w, state
        median = float(np.median(lengths[lengths > 0]))
        loudness = np.divide(median, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        model = w + combine_updates(p * loudness, w, W)
        return model, EqualVoiceState(median, current.clients, p)


if __name__ == "__main__":
    for rule in (fedhaw.FedAvg(), EqualVoice()):
        history = fedhaw.simulate(rule, "mnist-5k", clients=10, alpha=0.1, rounds=20)
        print(f"{type(rule).__name__:10}  accuracy {history.accuracy[-1]:.3f}")

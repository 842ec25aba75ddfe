"""FedAvg with FedHAW-auto's replay of lost updates, and nothing else of it: an ablation."""

from dataclasses import dataclass

import numpy as np

from fedhaw.rules.auto_replay import replayed
from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Array, Round
from fedhaw.rules.guards import checked
from fedhaw.rules.passes import combine, combine_updates


@dataclass(frozen=True)
class ReplayedFedAvg:
    """w + the weighted mean of what arrived and, fading, of what lost clients sent last."""

    def init(self) -> FedHAWAutoState:
        """The state before the first round."""
        return FedHAWAutoState()

    def aggregate(self, state: FedHAWAutoState, current: Round) -> tuple[Array, FedHAWAutoState]:
        """The next global model, (P,), and what can be replayed after it."""
        w, W, s = current.global_model, current.client_models, current.shares
        absent, last = replayed(state, current)
        model = w + combine_updates(s, w, W)  # the row of a lost upload holds w
        if last is not None:
            weight_of = dict(zip(current.clients, s, strict=True))
            model = model + combine(np.array([weight_of[client] for client in absent]), last)
        return checked(model, current), FedHAWAutoState(
            sent=w,
            previous=W,
            arrived=current.received,
            absent=absent,
            replayed=last,
            clients=current.clients,
            weights=s,
        )

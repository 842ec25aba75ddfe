"""What can be wrong with a rule's hyper-parameters and with a round."""

import math
from collections.abc import Sequence

import numpy as np

from fedhaw.errors import FedhawError, shown
from fedhaw.rules.kinds import Client


class InvalidRule(FedhawError, ValueError):
    """A rule was given a hyper-parameter it cannot work with."""


class InvalidRound(FedhawError, ValueError):
    """A round whose parts do not fit together."""


class InvalidClientModel(InvalidRound):
    """Some clients sent models that must not reach the sum.

    Attributes:
        clients: who sent them; a caller treats these as lost and aggregates again.
        reason: what is wrong with their models, in a few words.
    """

    def __init__(self, clients: Sequence[Client], reason: str) -> None:
        self.clients = tuple(clients)
        self.reason = reason
        names = ", ".join(repr(client) for client in self.clients)
        who = "client" if len(self.clients) == 1 else "clients"
        super().__init__(
            f"The model of {who} {names} {reason}; treat the upload as lost and aggregate again."
        )


def check_number(
    rule: str,
    name: str,
    value: object,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    whole: bool = False,
) -> None:
    """A check that a hyper-parameter is a finite number, or a whole one, in its range."""
    bounds = [(">=", at_least), (">", above), ("<=", at_most), ("<", below)]
    wanted = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        number = float(value)
        inside = at_least <= number <= at_most and above < number < below
        if math.isfinite(number) and inside and (number.is_integer() or not whole):
            return
    kind = "whole" if whole else "finite"
    raise InvalidRule(f"{rule} needs a {kind} number {name} {wanted}; got {shown(value)}.")

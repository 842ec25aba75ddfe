"""What stands between clients and the rule, and what is left of a rule behind it."""

from typing import TYPE_CHECKING, Any, Literal

from fedhaw.errors import shown
from fedhaw.rules import Clipped, Rule
from fedhaw.rules.private import Privacy, Private, holds_privacy, unhidden
from fedhaw.settings import InvalidSetting

if TYPE_CHECKING:  # they need torch, which most servers do without
    from fedhaw.clients import ClientUpdate
    from fedhaw.flower.beside import Beside

LENGTH_LIMIT = 5.0
"""How many times as long as is usual an update may be, unless the app says otherwise: half of what
the simulator allows, whose clients do not lie. Honest ones go further only where their learning
rate is about as large as it may be (benchmarks/honest_updates.py), but one liar of ten that goes
nine times too far costs an unguarded FedAvg 26 points (benchmarks/attacks.py)."""


def protected(
    rule: Rule[Any], clip: float | Literal["median"] | None, privacy: Privacy | None
) -> Rule[Any]:
    """The rule behind what the settings put before it.

    Raises:
        InvalidSetting: `clip` and `privacy` are both given, or the rule brings its own privacy.
    """
    if holds_privacy(rule):
        # What else must be off, or be refused, follows from the setting.
        raise InvalidSetting(
            f"rule is {shown(rule)}; give the rule within as rule=, and its privacy as privacy=."
        )
    if privacy is not None:
        if clip is not None:
            raise InvalidSetting("privacy= clips by its own clip; leave clip= out.")
        return Private(rule, privacy)
    if clip is None:
        return rule
    return Clipped(rule, None if clip == "median" else clip)


def beside_of(client_update: "ClientUpdate | None", privacy: Privacy | None) -> "Beside | None":
    """The server's part of a client algorithm, if it has one."""
    if client_update is None:
        return None
    from fedhaw.clients import algorithm_of
    from fedhaw.clients.registry import is_client_update
    from fedhaw.flower.beside import Beside

    if not is_client_update(client_update):
        raise InvalidSetting(
            f"client_update is {shown(client_update)}; give what the clients' app has, such as "
            'fedhaw.clients.named("scaffold", eta=0.01).'
        )

    if not algorithm_of(client_update).init(1).remembers:
        return None
    if privacy is not None:
        raise InvalidSetting(unhidden(beside=True, statistics=False))
    return Beside(client_update)


def left_of(rule: object) -> str:
    """What a rule is on a sum that hides each client."""
    return f"{type(rule).__name__} {getattr(rule, 'of_the_sum', 'as it is, all clients alike')}"

"""Who is who among the nodes, and who is worth asking.

Flower knows nodes by random numbers that change when an unauthenticated node restarts. Coefficients
belong to clients, so a client has a name of its own, which it states in each reply. The roster
remembers which node spoke for which client, how many samples stand behind it, and which nodes did
not answer: Flower goes on listing a dead node for up to a minute, and a node behind a broken link
for as long as its heartbeat gets through now and then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from fedhaw.flower.examples import believed

LONGEST_PAUSE = 16
"""Rounds; a node that never answers is still asked once in so many."""


@lru_cache(maxsize=65_536)
def order(name: str) -> tuple[int, int, str]:
    """The sort key of a client's name: whole numbers by value, then texts."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def unknown_client(node: int) -> str:
    """What to call a node whose client has never been heard of."""
    return f"node {node}"


@dataclass
class Roster:
    """What the server knows of its nodes and clients.

    Attributes:
        bound: the only client each registered node may speak for, by the name under which it was
            registered; None when clients' own word is taken.
        doubts: whether sudden claims of far more samples are doubted.
        clients: the client each node last spoke for.
        examples: each client's number of samples, as far as it is believed.
        doubted: the round since which a client has said more than is believed.
        registered: names under which authenticated nodes were registered.
        heard: the last round in which each client took part, counted from 1.
    """

    bound: Mapping[str, str] | None = None
    doubts: bool = True
    clients: dict[int, str] = field(default_factory=dict)
    examples: dict[str, float] = field(default_factory=dict)
    doubted: dict[str, int] = field(default_factory=dict)
    registered: dict[int, str] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    _taken: frozenset[str] = frozenset()
    _misses: dict[int, int] = field(default_factory=dict)
    _pause_until: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken = frozenset((self.bound or {}).values())

    def name(self, node: int) -> str:
        """The client a node speaks for, as far as is known."""
        bound = None if self.bound is None else self.bound_to(node)
        return bound or self.clients.get(node) or unknown_client(node)

    def bound_to(self, node: int) -> str | None:
        """The client an authenticated node is bound to; None when it is bound to none."""
        if self.bound is None:
            return None
        return self.bound.get(self.registered.get(node, ""))

    def objection(self, node: int, client: str) -> str | None:
        """Why `node` may not speak for `client`; None when it may."""
        if self.bound is None:
            return None
        own = self.bound_to(node)
        if own is not None and own != client:
            return f"claims to be {client!r} but its node is bound to {own!r}"
        if own is None and client in self._taken:
            return f"claims to be {client!r}, which is bound to another node"
        return None

    def begin(self) -> None:
        """A return to before the first round: nobody has been heard of."""
        for known in (self.clients, self.examples, self.doubted, self.heard):
            known.clear()
        self._misses.clear()
        self._pause_until.clear()

    def answered(self, node: int, client: str, examples: float, server_round: int) -> str | None:
        """The node answered for a client; a sentence if its number of examples is doubted."""
        self.clients[node] = client
        self.spoke(node)
        before = self.examples.get(client)
        since = self.doubted.get(client, server_round)
        if not self.doubts or believed(before, examples, server_round - since):
            self.examples[client] = examples
            self.doubted.pop(client, None)
            return None
        self.doubted[client] = since
        return (
            f"client {client} says it has {examples:.6g} examples after {before:.6g}, which count"
        )

    def spoke(self, node: int) -> None:
        """The node answered, if only with an error: it is alive and is asked again at once."""
        self._misses.pop(node, None)
        self._pause_until.pop(node, None)

    def silent(self, node: int, server_round: int) -> None:
        """The node was asked and did not answer: it is spared for 1, 2, 4, ... rounds."""
        misses = self._misses.get(node, 0) + 1
        self._misses[node] = misses
        pause = min(2 ** (misses - 1), LONGEST_PAUSE)
        self._pause_until[node] = server_round + pause + 1

    def answering(self, nodes: Iterable[int]) -> list[int]:
        """Those of the nodes that did not leave the last question they were asked unanswered."""
        return [node for node in nodes if node not in self._misses]

    def paused(self, server_round: int) -> dict[int, int]:
        """The nodes that are spared, and the round in which each is to be asked again."""
        return {node: until for node, until in self._pause_until.items() if until > server_round}

    def absent(self, present: Iterable[int], since: int) -> dict[int, str]:
        """Clients that took part in a round from `since` on and that no present node speaks for.

        Flower delists a node a minute after its last heartbeat; only the server's own memory knows
        then that somebody is missing.

        Returns:
            By the node that spoke for it last, each client's name.
        """
        name = self.clients.get if self.bound is None else self.name
        missing = self.heard.keys() - set(map(name, present))
        gone = {client for client in missing if self.heard[client] >= since}
        if not gone:  # as in most rounds
            return {}
        speakers = {client: node for node, client in self.clients.items() if client in gone}
        return {node: client for client, node in speakers.items()}

    def forget_absent(self, present: Iterable[int]) -> None:
        """A node that Flower no longer lists has left: should it return, it is asked at once."""
        here = set(present)
        for table in (self._misses, self._pause_until):
            for node in [node for node in table if node not in here]:
                del table[node]

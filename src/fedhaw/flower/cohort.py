"""Whom to ask: waiting for nodes, and drawing a cohort that a seed repeats."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedhaw.flower.errors import NoNodes
from fedhaw.flower.exchange import exchange
from fedhaw.flower.intake import Question
from fedhaw.flower.replies import named_in
from fedhaw.flower.roster import Roster, order

LOOK_EVERY = 0.5
ROLL_CALL_TIMEOUT = 30.0
TRAINING, EVALUATION = 100, 101  # streams of random numbers that must not meet
CLOCK_DIFFERENCE = 300.0
"""Seconds a message outlives its round: clients' clocks may differ from the server's."""

log = logging.getLogger("flwr.fedhaw")


def ask(
    roster: Roster,
    cohort: Sequence[int],
    content: RecordDict,
    kind: str,
    server_round: int,
    deadline: float | None,
) -> tuple[list[Question], list[Question]]:
    """Questions to those worth asking, and to those spared because they have been silent.

    If that leaves nobody, all are asked: sparing everybody would save nothing and burn rounds.
    """
    until = {node: roster.paused_until(node, server_round) for node in cohort}
    if all(until.values()):
        until = dict.fromkeys(cohort)
    ttl = None if deadline is None else deadline + CLOCK_DIFFERENCE
    asked = [
        Question(node, Message(content, node, kind, ttl=ttl, group_id=str(server_round)))
        for node in cohort
        if until[node] is None
    ]
    spared = [Question(node, None, again) for node, again in until.items() if again is not None]
    return asked, spared


@dataclass
class Recruiter:
    """Finds nodes and draws cohorts.

    Attributes:
        roster: who is who; learns the names of registered nodes and, in a roll call, of clients.
        minimum: how many nodes must have connected before the first round.
        timeout: seconds to wait for them, or for anybody at all in a later round.
        seed: of the draws.
        roll_call: ask new nodes for their client's name and number of samples before a round.
        examples_key: the metric that holds the number of examples.
    """

    roster: Roster
    minimum: int
    timeout: float
    seed: int
    roll_call: bool
    examples_key: str
    _complete: bool = False
    _called: set[int] = field(default_factory=set)

    def wait_for_all(self, nodes: int) -> None:
        """Wait for at least so many nodes before the next round, as if it were the first."""
        self.minimum = max(self.minimum, nodes)
        self._complete = False

    def present(self, grid: Grid) -> list[int]:
        """The nodes that are there, in the order of their clients' names.

        Once the federation has been complete, a round waits only for the first node that is there.

        Raises:
            NoNodes: nobody came before the first round.
        """
        end = time.monotonic() + self.timeout
        wanted = 1 if self._complete else max(1, self.minimum)
        told = -1
        while len(nodes := self._nodes(grid)) < wanted and time.monotonic() < end:
            if len(nodes) != told:
                log.info("Waiting for nodes: %d of %d are there.", len(nodes), wanted)
                told = len(nodes)
            time.sleep(LOOK_EVERY)
        if not nodes and not self._complete:
            raise NoNodes(
                f"No SuperNode connected within {self.timeout:g} s; start some, or wait longer "
                "with nodes_timeout=."
            )
        if len(nodes) < wanted:
            log.warning(
                "Only %d of %d nodes came within %g s; going on without the others.",
                len(nodes), wanted, self.timeout,
            )  # fmt: skip
        self._complete = self._complete or bool(nodes)
        self.roster.forget_absent(nodes)
        if self.roll_call:
            self._call(grid, nodes)
        return sorted(nodes, key=lambda node: (order(self.roster.name(node)), node))

    def draw(
        self, nodes: Sequence[int], fraction: float, least: int, server_round: int, purpose: int
    ) -> list[int]:
        """A cohort of the nodes, kept in their order; the same for the same seed and round."""
        size = min(len(nodes), max(int(len(nodes) * fraction), least))
        if size == len(nodes):
            return list(nodes)
        # The simulator's draw, so that one recipe gives the same cohorts here and there.
        sequence = np.random.SeedSequence(self.seed, spawn_key=(purpose, server_round - 1))
        lots = np.random.Generator(np.random.PCG64(sequence)).random(len(nodes))
        return [nodes[place] for place in sorted(np.argpartition(lots, size - 1)[:size])]

    def _nodes(self, grid: Grid) -> list[int]:
        found: list[int] = []
        for node in grid.get_nodes():
            found.append(node.node_id)
            # Only nodes that an administrator registered with their key have a name.
            if name := getattr(node, "name", ""):
                self.roster.registered[node.node_id] = name
        return found

    def _call(self, grid: Grid, nodes: Sequence[int]) -> None:
        """Ask each new node once who its client is; apps without a query function need not say."""
        new = [node for node in nodes if node not in self._called]
        self._called.update(new)
        content = RecordDict({"config": ConfigRecord({"roll-call": True})})
        messages = [
            Message(content, node, MessageType.QUERY, ttl=ROLL_CALL_TIMEOUT + CLOCK_DIFFERENCE)
            for node in new
        ]
        for reply in exchange(grid, messages, ROLL_CALL_TIMEOUT):
            by_id = {message.metadata.message_id: message for message in messages}
            asked = by_id.get(reply.metadata.reply_to_message_id)
            if asked is None or reply.has_error():
                continue
            node = asked.metadata.dst_node_id
            client, examples = named_in(reply.content, node, self.roster, self.examples_key)
            if client is not None and examples is not None:
                self.roster.answered(node, client, examples)

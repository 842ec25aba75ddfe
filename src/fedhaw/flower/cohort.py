"""Whom to ask: waiting for nodes, and drawing a cohort that a seed repeats."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedhaw.flower.errors import NoNodes
from fedhaw.flower.exchange import exchange
from fedhaw.flower.questions import Asked, Question
from fedhaw.flower.replies import named_in
from fedhaw.flower.roster import Roster, order
from fedhaw.flower.settings import StrategySettings
from fedhaw.loss_reasons import silent_before

LOOK_EVERY = 0.5
REMIND_EVERY = 60.0
ROLL_CALL_TIMEOUT = 30.0
_STREAMS = {MessageType.TRAIN: 100, MessageType.EVALUATE: 101}  # of random numbers; never to meet
CLOCK_DIFFERENCE = 300.0
"""Seconds a message outlives its round: clients' clocks may differ from the server's."""

log = logging.getLogger("flwr.fedhaw")


@dataclass
class Recruiter:
    """A recruiter, which finds nodes, draws cohorts and writes to them.

    Attributes:
        roster: who is who; learns the names of registered nodes and, in a roll call, of clients.
        settings: the strategy's.
        deadline: seconds that a round waits for replies; None where nobody has said.
    """

    roster: Roster
    settings: StrategySettings
    deadline: float | None = field(init=False)
    _at_start: int = field(init=False)
    _started: bool = False
    _called: set[int] = field(default_factory=set)
    _last: tuple[list[int], list[str], list[int]] = ([], [], [])

    def __post_init__(self) -> None:
        self.deadline, self._at_start = self.settings.round_deadline, self.settings.nodes_at_start

    def begin(self) -> None:
        """A return to before the first round: nobody has come or been called."""
        self.roster.begin()
        self._at_start, self._started = self.settings.nodes_at_start, False
        self._last = [], [], []
        self._called.clear()

    def ask(
        self,
        cohort: Sequence[int],
        content_for: Callable[[int], RecordDict],
        kind: str,
        server_round: int,
    ) -> tuple[list[Question], list[Question]]:
        """Questions to those worth asking, and to those spared because they have been silent.

        If that leaves nobody, all are asked: sparing everybody would save nothing and burn rounds.
        """
        paused, group = self.roster.paused(server_round), str(server_round)
        spared = [Question(n, None, silent_before(paused[n])) for n in cohort if n in paused]
        if len(spared) == len(cohort):
            paused, spared = {}, []
        ttl = None if self.deadline is None else self.deadline + CLOCK_DIFFERENCE

        def message(node: int) -> Message:
            # By name, because Flower takes longer to tell which is which.
            return Message(
                content=content_for(node),
                dst_node_id=node,
                message_type=kind,
                ttl=ttl,
                group_id=group,
            )

        return [Question(node, message(node)) for node in cohort if node not in paused], spared

    def draw(self, grid: Grid, kind: str, server_round: int) -> tuple[list[int], list[int]]:
        """The nodes that are there, and those of them that are to train or to evaluate.

        Both are in the order of their clients' names; the draw is the same for the same seed and
        round.

        Raises:
            NoNodes: nobody came before the first round, or too few for a round that needs them.
        """
        fraction, least = self.settings.share(kind)
        least_there = max(self.settings.min_available_nodes, least)
        nodes = self._present(grid, least_there, server_round)
        size = min(len(nodes), max(int(len(nodes) * fraction), least))
        if size == len(nodes):
            return nodes, nodes
        # The simulator's draw, so that one recipe gives the same cohorts here and there.
        key = (_STREAMS[kind], server_round - 1)
        sequence = np.random.SeedSequence(self.settings.seed, spawn_key=key)
        lots = np.random.Generator(np.random.PCG64(sequence)).random(len(nodes))
        chosen = sorted(np.argpartition(lots, size - 1)[:size])
        return nodes, [nodes[place] for place in chosen]

    def wait_for_all(self, nodes: int) -> None:
        """A wait for at least so many nodes before the next round, as if it were the first."""
        self._at_start = max(self._at_start, nodes)
        self._started = False

    def _present(self, grid: Grid, least: int, server_round: int) -> list[int]:
        """The nodes that are there, in the order of their clients' names, once they are enough."""
        timeout = self.settings.nodes_timeout
        nodes = self._waited_for(grid, max(1, least, 0 if self._started else self._at_start))
        came = f"{len(nodes)} of the {least} nodes that a round needs"
        if not nodes and not self._started:
            raise NoNodes(
                f"No SuperNode connected within {timeout:g} s; start some, or wait longer "
                "with nodes_timeout=."
            )
        if len(nodes) < least and self.settings.too_few_nodes == "stop":
            raise NoNodes(
                f"Only {came} were there within {timeout:g} s; start more and run again, "
                "which goes on from the checkpoint if there is one, or lower min_available_nodes= "
                'and min_train_nodes=, or say too_few_nodes="go on".'
            )
        if len(nodes) < least:
            log.warning("Only %s are there; the round goes on without the others.", came)
        self._started = self._started or bool(nodes)
        self.roster.forget_absent(nodes)
        if self.settings.roll_call:
            self._call(grid, nodes, server_round)
        names = list(map(self.roster.name, nodes))
        if (nodes, names) != self._last[:2]:  # they seldom change
            ordered = [node for _, node in sorted(zip(map(order, names), nodes, strict=True))]
            self._last = nodes, names, ordered
        return list(self._last[2])

    def _waited_for(self, grid: Grid, wanted: int) -> list[int]:
        """The nodes that are there, once they are as many as wanted or the time is up."""
        end = time.monotonic() + self.settings.nodes_timeout
        told = (-1, 0.0)
        while len(nodes := self._nodes(grid)) < wanted and time.monotonic() < end:
            if len(nodes) != told[0] or time.monotonic() - told[1] > REMIND_EVERY:
                log.info("Waiting for nodes: %d of %d are there.", len(nodes), wanted)
                told = len(nodes), time.monotonic()
            time.sleep(LOOK_EVERY)
        return nodes

    def _nodes(self, grid: Grid) -> list[int]:
        nodes = list(grid.get_nodes())
        # Only nodes that an administrator registered with their key have a name.
        named = {node.node_id: name for node in nodes if (name := getattr(node, "name", ""))}
        self.roster.registered.update(named)
        return [node.node_id for node in nodes]

    def _call(self, grid: Grid, nodes: Sequence[int], server_round: int) -> None:
        """Each new node's client, asked for once; apps without a query function need not say."""
        new = [node for node in nodes if node not in self._called]
        self._called.update(new)
        content = RecordDict({"config": ConfigRecord({"roll-call": True})})
        messages = [
            Message(content, node, MessageType.QUERY, ttl=ROLL_CALL_TIMEOUT + CLOCK_DIFFERENCE)
            for node in new
        ]
        asked, key = Asked(messages), self.settings.weighted_by_key
        for reply in exchange(grid, messages, ROLL_CALL_TIMEOUT):
            node = asked.node(reply)
            if node is None or reply.has_error():
                continue
            client, examples = named_in(reply.content, node, self.roster, key)
            if client is not None and examples is not None:
                self.roster.answered(node, client, examples, server_round)

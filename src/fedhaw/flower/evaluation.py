"""What clients say about the new model."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid

from fedhaw.flower.cohort import Recruiter
from fedhaw.flower.examples import ExamplesLimit
from fedhaw.flower.metrics import MetricsFunction, weighed
from fedhaw.flower.questions import Asked
from fedhaw.flower.replies import is_silence, named_in, printable
from fedhaw.flower.roster import order

log = logging.getLogger("flwr.fedhaw")


@dataclass
class Evaluations:
    """The clients' metrics, gathered in the order of their names.

    Attributes:
        recruiter: draws who is asked; its roster learns who was silent.
        limit: on what clients say of their data.
        combine: how the metrics are put together.
    """

    recruiter: Recruiter
    limit: ExamplesLimit
    combine: MetricsFunction
    _asked: Asked = field(default_factory=Asked)

    def configure(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """The messages to the nodes drawn to evaluate the new model."""
        recruiter, kind = self.recruiter, MessageType.EVALUATE
        if recruiter.settings.fraction_evaluate == 0:
            return []
        _, cohort = recruiter.draw(grid, kind, server_round)
        content = recruiter.settings.content(server_round, arrays, config)
        # The round is over: who was silent in it is spared from its evaluation, too.
        questions, _ = recruiter.ask(cohort, lambda node: content, kind, server_round)
        self._asked = Asked(q.message for q in questions if q.message is not None)
        return list(self._asked.messages.values())

    def gather(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """One record for all usable replies; None when there are none."""
        roster, key = self.recruiter.roster, self.recruiter.settings.weighted_by_key
        usable: list[tuple[str, float, MetricRecord]] = []
        heard: set[int] = set()
        for reply in replies:
            node = self._asked.node(reply)
            if node is None:
                continue
            if reply.has_error():
                reason = printable((reply.error.reason or "")[-200:])
                log.warning("\t> node %s could not evaluate: %s", node, reason)
                if not is_silence(reply):
                    heard.add(node)
                continue
            heard.add(node)
            client, examples = named_in(reply.content, node, roster, key)
            if client is None or examples is None:
                log.warning("\t> node %s: evaluation without %r", node, key)
                continue
            metrics = [r for r in reply.content.values() if isinstance(r, MetricRecord)]
            usable.append((client, examples, metrics[0]))
        for node in self._asked.messages:
            if node not in heard:
                log.warning("\t> node %s did not evaluate", node)
                roster.silent(node, server_round)
        self._asked = Asked()
        if not usable:
            return None
        usable.sort(key=lambda said: order(said[0]))
        counted, _ = self.limit.counted({client: examples for client, examples, _ in usable})
        contents = [weighed(said, key, counted[client]) for client, _, said in usable]
        return self.combine(contents, key)

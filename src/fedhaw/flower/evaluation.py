"""What clients say about the new model."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from flwr.app import Message, MetricRecord

from fedhaw.flower.examples import ExamplesLimit
from fedhaw.flower.metrics import MetricsFunction, weighed
from fedhaw.flower.questions import Asked
from fedhaw.flower.replies import is_silence, named_in, printable
from fedhaw.flower.roster import Roster, order

log = logging.getLogger("flwr.fedhaw")


@dataclass
class Evaluations:
    """The clients' metrics, gathered in the order of their names.

    Attributes:
        roster: who is who; learns who was silent.
        examples_key: the metric that holds the number of examples.
        combine: how the metrics are put together.
        limit: on what clients say of their data.
        asked: whom the present round asks.
    """

    roster: Roster
    examples_key: str
    combine: MetricsFunction
    limit: ExamplesLimit = field(default_factory=ExamplesLimit)
    asked: Asked = field(default_factory=Asked)

    def gather(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """One record for all usable replies; None when there are none."""
        usable: list[tuple[str, float, MetricRecord]] = []
        heard: set[int] = set()
        for reply in replies:
            node = self.asked.node(reply)
            if node is None:
                continue
            if reply.has_error():
                reason = printable((reply.error.reason or "")[-200:])
                log.warning("\t> node %s could not evaluate: %s", node, reason)
                if not is_silence(reply):
                    heard.add(node)
                continue
            heard.add(node)
            client, examples = named_in(reply.content, node, self.roster, self.examples_key)
            if client is None or examples is None:
                log.warning("\t> node %s: evaluation without %r", node, self.examples_key)
                continue
            metrics = [r for r in reply.content.values() if isinstance(r, MetricRecord)]
            usable.append((client, examples, metrics[0]))
        for node in self.asked.messages:
            if node not in heard:
                log.warning("\t> node %s did not evaluate", node)
                self.roster.silent(node, server_round)
        self.asked = Asked()
        if not usable:
            return None
        usable.sort(key=lambda said: order(said[0]))
        counted, _ = self.limit.counted({client: examples for client, examples, _ in usable})
        contents = [weighed(said, self.examples_key, counted[client]) for client, _, said in usable]
        return self.combine(contents, self.examples_key)

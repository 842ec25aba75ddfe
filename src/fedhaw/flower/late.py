"""Questions that nobody answered in time: Flower keeps the answers for minutes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Overdue:
    """A question that is still open.

    Attributes:
        node: who was asked.
        asked: in which round.
        sent: the learnt part of the model that it was sent.
    """

    node: int
    asked: int
    sent: NDArray[Any]


@dataclass
class LateReplies:
    """The open questions of earlier rounds.

    Attributes:
        rounds: for how many rounds a question stays open; 0 for none.
        open: by the message's id.
    """

    rounds: int
    open: dict[str, Overdue] = field(default_factory=dict)

    def nodes(self) -> set[int]:
        """Who still owes a reply."""
        return {overdue.node for overdue in self.open.values()}

    def close(
        self,
        server_round: int,
        messages: Iterable[Message],
        sent: NDArray[Any],
        heard: set[int],
        came_late: set[int],
    ) -> None:
        """The end of a round: who was asked and not heard owes a reply.

        Args:
            server_round: the round.
            messages: what was sent in it.
            sent: the learnt part of the model that was sent.
            heard: nodes that answered; what they were asked before is of no interest any more.
            came_late: nodes that answered an earlier question.
        """
        oldest = server_round - self.rounds
        self.open = {
            message: overdue
            for message, overdue in self.open.items()
            if overdue.asked > oldest and overdue.node not in heard | came_late
        }
        if self.rounds:
            for message in messages:
                node = message.metadata.dst_node_id
                if node not in heard and message.metadata.message_id:
                    self.open[message.metadata.message_id] = Overdue(node, server_round, sent)

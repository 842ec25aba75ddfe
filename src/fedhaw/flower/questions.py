"""Whom a round is about, and whose reply is whose."""

from collections.abc import Iterable
from typing import NamedTuple

from flwr.app import Message


class Question(NamedTuple):
    """A node of the cohort with what it was sent, or with the reason why it was sent nothing.

    Attributes:
        node: whose.
        message: what it was sent, or None.
        reason: why it was sent nothing.
        drawn: False for a node that is not of the cohort but owes a reply of an earlier round: it
            takes part if that comes, and is not missed otherwise.
    """

    node: int
    message: Message | None
    reason: str = ""
    drawn: bool = True


class Asked:
    """The messages that were sent.

    Attributes:
        messages: by the node that each was sent to.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = {message.metadata.dst_node_id: message for message in messages}
        self._nodes: dict[str, int] = {}

    def node(self, reply: Message) -> int | None:
        """Whose reply this is: by its question, for an error may come from the SuperLink."""
        if not self._nodes:  # messages get their ids when they are sent
            self._nodes = {m.metadata.message_id: node for node, m in self.messages.items()}
        if answers := reply.metadata.reply_to_message_id:
            return self._nodes.get(answers)
        # A grid that gives messages no ids leaves only the sender's.
        sender: int = reply.metadata.src_node_id
        return sender if sender in self.messages else None

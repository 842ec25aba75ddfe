"""Sending a round's questions and handing on each answer as it arrives.

Flower's own `Grid.send_and_receive` returns when everybody has answered or the time is up, with all
replies in one list, and looks for them every three seconds. Handing them on one by one lets the
strategy decode a model while others are still training, and keep only one reply in memory.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

POLL = 0.5
"""Seconds between two looks for replies."""

MOST_PULLS = 32
"""Requests a look may take; beyond so many pending replies, several are pulled by one."""

log = logging.getLogger("flwr.fedhaw")


def exchange(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    poll: float = POLL,
    overdue: Iterable[str] = (),
) -> Iterator[Message]:
    """The replies to `messages`, which it sends, until all are in or `timeout` seconds have passed.

    The time is counted from when the messages are on their way. Replies to the `overdue` messages
    of earlier rounds, by their ids, are handed on if they are there, but not waited for.
    """
    if not messages:
        return
    pending = {message_id for message_id in grid.push_messages(list(messages)) if message_id}
    late = set(overdue)
    end = time.monotonic() + timeout
    while pending:
        for some in (late, pending):
            for reply in _pulled(grid, some):
                some.discard(reply.metadata.reply_to_message_id)
                yield reply
        left = end - time.monotonic()
        if not pending or left <= 0:
            return
        time.sleep(min(poll, left))


def _pulled(grid: Grid, pending: set[str]) -> Iterator[Message]:
    """Whatever is there; one reply at a time, or a few of a very large cohort.

    Raises whatever the grid raises when the SuperLink cannot be reached: that ends the run, and the
    checkpoint is where it goes on.
    """
    waiting = sorted(pending)
    size = max(1, len(waiting) // MOST_PULLS)
    for first in range(0, len(waiting), size):
        some = waiting[first : first + size]
        try:
            yield from grid.pull_messages(some)
        except ValueError as error:
            # Bytes that do not make a message: the sender is lost, the run is not.
            log.warning("A reply could not be unpacked and counts as lost: %s", error)
            pending.difference_update(some)

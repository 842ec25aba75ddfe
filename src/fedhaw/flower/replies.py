"""What one reply is worth: a model to aggregate, or a reason why there is none.

Nothing here trusts the sender. A reply counts only if it answers a question of this round, carries
exactly one ArrayRecord and one MetricRecord with a usable number of examples, and comes from a
node that may speak for the client it names.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedhaw import loss_reasons
from fedhaw.errors import shown
from fedhaw.flower.roster import Roster

CLIENT_KEYS = ("client-id", "partition-id")
"""Where a reply's ConfigRecord names its client; the first one found counts."""

BESIDE, TOLD = "fedhaw-beside", "fedhaw-told"
"""The records of what travels beside the model, and of what server and client tell each other."""

ACCEPTED, MEMORY = "accepted", "memory"
"""In TOLD: the client's round that the server accepted last, and the round its memory is of."""

LOSS_KEYS = ("train-loss", "train_loss", "loss")
LONGEST_NAME = 200

# Flower's error codes that mean: whoever was asked did not answer, and may not next time either.
_SILENT = {
    3: "no reply before the message expired",
    4: "reply lost on the way",
    5: "node unavailable",
    8: "client process died",
}


@dataclass(frozen=True, eq=False)
class Contribution:
    """What a usable reply says besides its model.

    Attributes:
        client: who sent it.
        examples: how many samples stand behind it.
        metrics: what else it says.
        beside: what came up beside the model, if something did.
        memory: the round that the client's memory is of, counted from 1; 0 for none.
        asked: the round in which it was asked, if that was an earlier one.
    """

    client: str
    examples: float
    metrics: MetricRecord
    beside: ArrayRecord | None
    memory: int
    asked: int | None = None

    @property
    def loss(self) -> float | None:
        """The client's own training loss, if it reports one."""
        for key in LOSS_KEYS:
            value = self.metrics.get(key)
            if isinstance(value, (int, float)) and math.isfinite(value):
                return float(value)
        return None


@dataclass(frozen=True)
class Refusal:
    """Why a node that was asked contributes no model this round.

    Attributes:
        reason: in a few words.
        client: whom it spoke for, if it could be read.
        examples: that client's number of samples, if it could be read.
        silent: nobody answered, so that asking again at once would cost another deadline.
        of_a_reply: something came back, and could not be used.
    """

    reason: str
    client: str | None = None
    examples: float | None = None
    silent: bool = False
    of_a_reply: bool = True


NO_REPLY = Refusal(loss_reasons.NO_REPLY, silent=True, of_a_reply=False)


@dataclass(frozen=True)
class Gate:
    """What a reply must be before its arrays are looked at.

    Attributes:
        roster: who may speak for whom.
        examples_key: the metric that holds the number of examples.
        most_bytes: how large a reply may be, all its records together.
        drops: clients whose uploads are to count as lost though they have arrived.
    """

    roster: Roster
    examples_key: str
    most_bytes: float
    drops: Callable[[str], bool]

    def read(self, reply: Message, node: int) -> tuple[Contribution, ArrayRecord] | Refusal:
        """What a reply says, and its model, which has not been looked at yet.

        Args:
            reply: what came back.
            node: who was asked the question it answers.
        """
        if reply.has_error():
            return _refusal_of_error(reply)
        content, key = reply.content, self.examples_key
        if (size := sum(one.count_bytes() for one in content.values())) > self.most_bytes:
            return Refusal(loss_reasons.too_large(size))
        client = _client(content, node, self.roster)
        if isinstance(client, Refusal):
            return client
        records = [record for record in content.values() if isinstance(record, MetricRecord)]
        if len(records) != 1:
            return Refusal(f"{len(records)} MetricRecords where one is expected", client)
        examples = records[0].get(key)
        if examples is None:
            return Refusal(f"no metric {key!r}", client)
        if isinstance(examples, (bool, list)) or not _usable(examples):
            return Refusal(f"metric {key!r} is {shown(examples)}", client)
        found = {
            name: record for name, record in content.items() if isinstance(record, ArrayRecord)
        }
        beside = found.pop(BESIDE, None)
        if len(found) != 1:
            reason = f"{len(found)} ArrayRecords where one is expected"
            return Refusal(reason, client, float(examples))
        if self.drops(client):
            return Refusal(loss_reasons.UPLINK, client, float(examples), of_a_reply=False)
        (arrays,) = found.values()
        said = Contribution(
            client, float(examples), records[0], beside, told_in(content, MEMORY) or 0
        )
        return said, arrays


def named_in(
    content: RecordDict, node: int, roster: Roster, examples_key: str
) -> tuple[str | None, float | None]:
    """The client and its number of examples that a reply without a model states, if it does."""
    client = _client(content, node, roster)
    if isinstance(client, Refusal):
        return None, None
    for record in content.values():
        if isinstance(record, MetricRecord):
            examples = record.get(examples_key)
            if isinstance(examples, (int, float)) and _usable(examples):
                return client, float(examples)
    return client, None


def is_silence(reply: Message) -> bool:
    """Whether an error says that nobody answered."""
    return reply.has_error() and reply.error.code in _SILENT


def told_in(content: RecordDict, key: str) -> int | None:
    """A number that server and client tell each other beside the model, if it is there."""
    told = content.get(TOLD)
    number = told.get(key) if isinstance(told, ConfigRecord) else None
    return number if isinstance(number, int) else None


def printable(text: str) -> str:
    """A text from outside as it may stand in a log: nothing in it moves the cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _usable(examples: float) -> bool:
    return math.isfinite(examples) and 0 <= examples < 2**63


def _refusal_of_error(reply: Message) -> Refusal:
    code, text = reply.error.code, (reply.error.reason or "").strip()
    if code in _SILENT:
        return Refusal(_SILENT[code], silent=True, of_a_reply=False)
    lines = text.splitlines()
    # The last line of a traceback names the exception.
    detail = printable(lines[-1].strip()[:200]) if lines else f"Flower error code {code}"
    return Refusal(loss_reasons.exception(detail), of_a_reply=False)


def _client(content: RecordDict, node: int, roster: Roster) -> str | Refusal:
    claimed: str | int | None = None
    for record in content.values():
        if not isinstance(record, ConfigRecord):
            continue
        for key in CLIENT_KEYS:
            if key in record and claimed is None:
                value = record[key]
                if isinstance(value, bool) or not isinstance(value, (str, int)):
                    return Refusal(f"{key} is neither a text nor a whole number")
                claimed = value
    if claimed is None:
        return roster.bound_to(node) or roster.registered.get(node) or str(node)
    client = str(claimed)
    if not client.strip() or len(client) > LONGEST_NAME or not client.isprintable():
        return Refusal(f"client id is empty, longer than {LONGEST_NAME} characters or unprintable")
    objection = roster.objection(node, client)
    return client if objection is None else Refusal(objection)

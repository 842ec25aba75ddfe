"""One round's replies, each decoded into its row of the matrix as it comes in.

A reply's arrays are written into the row kept for the node that was asked and then let go, so that
beyond the matrix only one reply need be in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import Message

from fedhaw.flower.answers import Answers
from fedhaw.flower.judge import Judge
from fedhaw.flower.late import LateReplies, Overdue
from fedhaw.flower.questions import Asked, Question
from fedhaw.flower.replies import NO_REPLY, Contribution, Gate, Refusal
from fedhaw.flower.roster import order
from fedhaw.flower.rows import Rows
from fedhaw.flower.uploads import Uploads
from fedhaw.flower.wire import Unreadable
from fedhaw.late import counts
from fedhaw.rules import LengthGuard


@dataclass(frozen=True)
class IntakeReport:
    """What there is to say of a round's replies.

    Attributes:
        lost: why each lost client was lost, by name, or by node where no name is known.
        refused: how many replies could not be used.
        doubted: how many say that they have more examples than count.
        events: what else happened, a sentence each.
        guard: the guard on long updates, which knows of this round.
    """

    lost: dict[str, str]
    refused: int
    doubted: int
    events: list[str]
    guard: LengthGuard


@dataclass
class Intake:
    """The place where a round's replies are taken in, one by one.

    Args:
        questions: whom the round is about, in the order of their expected names.
        gate: what a reply must be.
        rows: where models go.
        judge: of what came, when all of it is in; its roster learns from the replies.
        late: questions of earlier rounds that are still open.
    """

    questions: Sequence[Question]
    gate: Gate
    rows: Rows
    judge: Judge
    late: LateReplies
    _answers: Answers = field(default_factory=Answers)
    _overdue: dict[int, Overdue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._asked = Asked(q.message for q in self.questions if q.message is not None)
        self._answers.refusals = {
            question.node: Refusal(question.reason, of_a_reply=False)
            for question in self.questions
            if question.message is None
        }

    def take(self, reply: Message) -> str | None:
        """One reply, taken in; returns what to log when nobody was waiting for it."""
        contributions, refusals = self._answers.contributions, self._answers.refusals
        node, overdue = self._asked.node(reply), None
        if node is None:
            overdue = self.late.open.get(reply.metadata.reply_to_message_id)
            if overdue is None or overdue.node not in self.rows.of:
                sender = reply.metadata.src_node_id
                return f"A reply from node {sender} answers no question; ignored."
            node = overdue.node
            if reply.has_error() or node in contributions:
                return None
            refusals.pop(node, None)  # of one that was spared because it had not answered
        elif node in self._overdue:  # what was asked in this round is worth more
            del self._overdue[node], contributions[node]
        elif node in contributions or node in refusals:
            return f"Node {node} replied twice; the second reply is ignored."
        read = self._read(reply, node, overdue)
        if not isinstance(read, Refusal):
            contributions[node] = read
        elif overdue is None or node not in self._asked.messages:  # what it was asked now is open
            refusals[node] = read
        return None

    def _read(self, reply: Message, node: int, overdue: Overdue | None) -> Contribution | Refusal:
        """What a reply says, once its model is in the matrix."""
        opened = self.gate.read(reply, node)
        if isinstance(opened, Refusal):
            return opened
        said, arrays = opened
        sent = self.rows.global_model[0] if overdue is None else overdue.sent
        try:
            self.rows.write(node, arrays, sent)
        except Unreadable as error:
            return Refusal(str(error), said.client, said.examples)
        if overdue is None:
            return said
        self._overdue[node] = overdue
        return replace(said, asked=overdue.asked)

    def finish(self, server_round: int) -> tuple[Uploads, IntakeReport]:
        """The close of the round: whoever has not answered by now is lost."""
        answers, asked = self._answers, self._asked.messages
        roster, examples = self.judge.roster, self.judge.roster.examples
        self._close(server_round)
        absurd, guard = self.judge.judge(answers, self.rows.lengths())
        late = self._move_the_late(server_round)
        sudden = answers.tell(roster, asked, server_round)
        lost, nodes = answers.lost(roster, asked)
        answered = {said.client: node for node, said in answers.contributions.items()}
        nodes.update(answered)
        # Nobody knows the weight of a client that has never been heard of: it stays out.
        clients = sorted({*answered, *(c for c in lost if c in examples)}, key=order)
        counted, more = self.judge.examples_limit.counted({c: examples[c] for c in clients})
        received = np.array([client in answered for client in clients], dtype=np.bool_)
        uploads = Uploads(
            clients=tuple(clients),
            models=self.rows.gathered([nodes[client] for client in clients], received),
            examples=np.array([counted[client] for client in clients], dtype=np.float64),
            received=received,
            late=np.array([answered.get(c) in self._overdue for c in clients], dtype=np.bool_),
            absurd=np.array([client in absurd for client in clients], dtype=np.bool_),
            contributions={c: answers.contributions[answered[c]] for c in clients if c in answered},
            rest={client: self.rows.rest[node] for client, node in answered.items()},
            population=len(examples),
        )
        return uploads, IntakeReport(
            lost={client: lost[client] for client in sorted(lost, key=order)},
            refused=sum(refusal.of_a_reply for refusal in answers.refusals.values()),
            doubted=len({*sudden, *more}),
            events=[*late, *sudden, *more],
            guard=guard,
        )

    def _close(self, server_round: int) -> None:
        """The end of waiting; who was asked and has not been heard may still answer late."""
        answers, asked = self._answers, self._asked.messages
        for question in self.questions:
            if not question.drawn:
                answers.refusals.pop(question.node, None)
            elif question.message is not None and question.node not in answers.contributions:
                answers.refusals.setdefault(question.node, NO_REPLY)
        heard = answers.heard() & asked.keys() - self._overdue.keys()
        sent = self.rows.global_model[0]
        self.late.close(server_round, asked.values(), sent, heard, set(self._overdue))

    def _move_the_late(self, server_round: int) -> list[str]:
        """The late models moved to where the global model is by now; a sentence on each."""
        said = []
        for node, overdue in sorted(self._overdue.items()):
            if node in self._answers.contributions:
                age = server_round - overdue.asked
                self.rows.move(node, overdue, age)
                said.append(counts(self._answers.contributions[node].client, overdue.asked, age))
        return said

"""One round's replies, each decoded into its row of the matrix as it comes in.

A reply's arrays are written into the row kept for the node that was asked and then let go, so that
beyond the matrix only one reply need be in memory. Rows lie in the order of the names under which
clients are expected; should the names in the replies give another order (in the first round, or
after nodes have restarted) rows are moved in place, because equal inputs must meet the arithmetic
in equal order to give equal bits.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from fedhaw.flower.examples import SUDDEN, ExamplesLimit
from fedhaw.flower.late import LateReplies, Overdue
from fedhaw.flower.layout import WORTH_THREADS, WireLayout
from fedhaw.flower.replies import NO_REPLY, Refusal, read, size_of
from fedhaw.flower.roster import Roster, order, unknown_client
from fedhaw.flower.wire import Unreadable
from fedhaw.late import counts, moved_to
from fedhaw.loss_reasons import UPLINK, too_large
from fedhaw.rules import LengthGuard

if TYPE_CHECKING:  # it needs torch, which most servers do without
    from fedhaw.flower.beside import Beside

REPLY_LIMIT = 4.0
"""How many times as large as the model a reply may be unless the app says otherwise."""


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


@dataclass(frozen=True)
class Contribution:
    """What is kept of a reply once its model is in the matrix.

    Attributes:
        client: who sent it.
        examples: how many samples stand behind it.
        loss: the client's own training loss.
        metrics: what else it said.
        rest: the model's whole-number arrays.
        beside: what came up beside the model.
        memory: the round that the client's memory is of.
        asked: the round in which it was asked, if that was an earlier one.
    """

    client: str
    examples: float
    loss: float | None
    metrics: MetricRecord
    rest: dict[str, Array]
    beside: ArrayRecord | None = None
    memory: int = 0
    asked: int | None = None


@dataclass(frozen=True, eq=False)
class Uploads:
    """A round as the rule wants it.

    Attributes:
        clients: K names in order; lost clients are among them if their weight is known.
        models: (K, P) their models, a lost one's row holding the global model.
        examples: (K,) their numbers of samples.
        received: (K,) False where the upload was lost.
        contributions: of the clients that answered, by name.
        lost: why each lost client was lost, by name, or by node where no name is known.
        guard: the guard on long updates, which knows of this round.
        late: (K,) True where it came late.
        absurd: (K,) True where it was refused for its length.
        refused: how many replies could not be used.
        doubted: how many say that they have more examples than count.
        population: how many clients are known.
        events: what else there is to say of the round, a sentence each.
    """

    clients: tuple[str, ...]
    models: NDArray[Any]
    examples: NDArray[np.float64]
    received: NDArray[np.bool_]
    contributions: dict[str, Contribution]
    lost: dict[str, str]
    late: NDArray[np.bool_]
    absurd: NDArray[np.bool_]
    guard: LengthGuard = field(default_factory=LengthGuard)
    refused: int = 0
    doubted: int = 0
    population: int = 0
    events: Sequence[str] = ()


@dataclass
class Intake:
    """The place where a round's replies are taken in, one by one.

    Args:
        layout: of the model.
        global_model: what was sent out: the learnt and the averaged part of the vector.
        questions: whom the round is about, in the order of their expected names.
        matrix: (at least len(questions), P) where models go; overwritten.
        roster: who is who; learns from the replies.
        examples_key: the metric that holds the number of examples.
        guard: refuses absurdly long updates.
        examples_limit: bounds what clients say of their data.
        late: questions of earlier rounds that are still open.
        beside: the client algorithm's part of the server, if it has one.
        most_bytes: how large a reply may be, all its records together.
        drops: clients whose uploads are to count as lost though they have arrived.
        hurry: all replies are in memory anyway, so one may be copied while the next is looked at;
            otherwise each is let go before the next is taken.
    """

    layout: WireLayout
    global_model: tuple[NDArray[Any], NDArray[Any]]
    questions: Sequence[Question]
    matrix: NDArray[Any]
    roster: Roster
    examples_key: str
    guard: LengthGuard = field(default_factory=LengthGuard)
    examples_limit: ExamplesLimit = field(default_factory=ExamplesLimit)
    late: LateReplies = field(default_factory=lambda: LateReplies(0))
    beside: "Beside | None" = None
    most_bytes: float = math.inf
    drops: Callable[[str], bool] = lambda client: False
    hurry: bool = False
    bytes_received: int = 0
    _rows: dict[int, int] = field(default_factory=dict)
    _by_message: dict[str, int] = field(default_factory=dict)
    _contributions: dict[int, Contribution] = field(default_factory=dict)
    _refusals: dict[int, Refusal] = field(default_factory=dict)
    _copying: list[Future[None]] = field(default_factory=list)
    _squares: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    _overdue: dict[int, Overdue] = field(default_factory=dict)
    _absurd: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rows = {question.node: row for row, question in enumerate(self.questions)}
        self._asked = {q.node: q.message for q in self.questions if q.message is not None}
        for question in self.questions:
            if question.message is None:
                self._refusals[question.node] = Refusal(question.reason, of_a_reply=False)

    def take(self, reply: Message) -> str | None:
        """One reply, taken in; returns what to log when nobody was waiting for it."""
        node, overdue = self._node(reply), None
        if node is None:
            overdue = self.late.open.get(reply.metadata.reply_to_message_id)
            if overdue is None or overdue.node not in self._rows:
                sender = reply.metadata.src_node_id
                return f"A reply from node {sender} answers no question; ignored."
            node = overdue.node
            if reply.has_error() or node in self._contributions:
                return None
            self._refusals.pop(node, None)  # of one that was spared because it had not answered
        elif node in self._overdue:  # what was asked in this round is worth more
            del self._overdue[node], self._contributions[node]
        elif node in self._contributions or node in self._refusals:
            return f"Node {node} replied twice; the second reply is ignored."
        if (size := size_of(reply)) > self.most_bytes:
            self._refusals[node] = Refusal(too_large(size))
            return None
        opened = read(reply, node, self.roster, self.examples_key)
        if isinstance(opened, Refusal):
            self._refusals[node] = opened
            return None
        if self.drops(opened.client):
            self._refusals[node] = Refusal(UPLINK, opened.client, opened.examples, of_a_reply=False)
            return None
        self.bytes_received += sum(len(array.data) for array in opened.arrays.values())
        try:
            row = self.matrix[self._rows[node]]
            sent = self.global_model[0] if overdue is None else overdue.sent
            if self.hurry and self.layout.size >= WORTH_THREADS:
                self._squares[node], copying = self.layout.reading(opened.arrays, row, sent)
                self._copying += copying
            else:
                self._squares[node] = self.layout.read(opened.arrays, row, sent)
        except Unreadable as error:
            self._refusals[node] = Refusal(str(error), opened.client, opened.examples)
            return None
        if overdue is not None:
            self._overdue[node] = overdue
        self._contributions[node] = Contribution(
            opened.client,
            opened.examples,
            opened.loss,
            opened.metrics,
            self.layout.rest(opened.arrays),
            opened.beside,
            opened.memory,
            None if overdue is None else overdue.asked,
        )
        return None

    def finish(self, server_round: int) -> Uploads:
        """The close of the round: whoever has not answered by now is lost."""
        for copying in self._copying:
            copying.result()
        for node in self._asked:
            if node not in self._contributions:
                self._refusals.setdefault(node, NO_REPLY)
        for question in self.questions:
            if not question.drawn:
                self._refusals.pop(question.node, None)
        self._refuse_duplicates()
        if self.beside is not None:
            self._refuse_what_came_beside(self.beside)
        self._refuse_the_absurd()
        late = self._move_the_late(server_round)
        sudden = self._tell_roster(server_round)
        answered = {c.client: node for node, c in self._contributions.items()}
        lost, lost_nodes = self._name_the_lost(set(answered))
        examples = self.roster.examples
        # Nobody knows the weight of a client that has never been heard of: it stays out.
        clients = sorted({*answered, *(c for c in lost if c in examples)}, key=order)
        counted, events = self.examples_limit.counted({c: examples[c] for c in clients})
        node_of = {**lost_nodes, **answered}
        sources = [self._rows[node_of[client]] for client in clients]
        models = _gather(self.matrix, sources)
        for row, client in enumerate(clients):
            if client in lost:
                self.layout.join(*self.global_model, out=models[row])
        return Uploads(
            clients=tuple(clients),
            models=models,
            examples=np.array([counted[client] for client in clients], dtype=np.float64),
            received=np.array([client in answered for client in clients], dtype=np.bool_),
            contributions={c: self._contributions[answered[c]] for c in clients if c in answered},
            lost={client: lost[client] for client in sorted(lost, key=order)},
            late=np.array([answered.get(c) in self._overdue for c in clients], dtype=np.bool_),
            absurd=np.array([client in self._absurd for client in clients], dtype=np.bool_),
            guard=self.guard,
            refused=sum(refusal.of_a_reply for refusal in self._refusals.values()),
            doubted=len({*sudden, *events}),
            population=len(self.roster.examples),
            events=[*late, *sudden, *events],
        )

    @property
    def heard(self) -> set[int]:
        """The nodes that answered what they were asked in this round."""
        refused = {node for node, refusal in self._refusals.items() if not refusal.silent}
        return (self._contributions.keys() | refused) & self._asked.keys() - self._overdue.keys()

    @property
    def came_late(self) -> set[int]:
        """The nodes that answered what they were asked in an earlier round."""
        return set(self._overdue)

    def _move_the_late(self, server_round: int) -> list[str]:
        """The late models moved to where the global model is by now; a sentence on each."""
        said = []
        for node, overdue in sorted(self._overdue.items()):
            if node in self._contributions:
                age, row = server_round - overdue.asked, self.matrix[self._rows[node]]
                moved_to(self.global_model[0], overdue.sent, row[: self.layout.learnt], age)
                said.append(counts(self._contributions[node].client, overdue.asked, age))
        return said

    def _node(self, reply: Message) -> int | None:
        """Whose reply this is: by its question, for an error may come from the SuperLink."""
        if not self._by_message:  # messages get their ids when they are sent
            self._by_message = {m.metadata.message_id: n for n, m in self._asked.items()}
        answers = reply.metadata.reply_to_message_id
        if answers:
            return self._by_message.get(answers)
        # A grid that gives messages no ids leaves only the sender's.
        sender: int = reply.metadata.src_node_id
        return sender if sender in self._asked else None

    def _refuse_duplicates(self) -> None:
        claimants: dict[str, list[int]] = {}
        for node, contribution in self._contributions.items():
            claimants.setdefault(contribution.client, []).append(node)
        for node, contribution in list(self._contributions.items()):
            client = contribution.client
            if len(claimants[client]) > 1 and self.roster.bound_to(node) != client:
                del self._contributions[node]
                nodes = ", ".join(map(str, sorted(claimants[client])))
                reason = f"duplicate client id: nodes {nodes} claim to be {client!r}"
                self._refusals[node] = Refusal(reason, client)

    def _refuse_what_came_beside(self, beside: "Beside") -> None:
        refused = beside.judge({c.client: c.beside for c in self._contributions.values()})
        for node, contribution in list(self._contributions.items()):
            if contribution.client in refused:
                del self._contributions[node]
                reason = refused[contribution.client]
                self._refusals[node] = Refusal(reason, contribution.client, contribution.examples)

    def _refuse_the_absurd(self) -> None:
        by_node = sorted(self._contributions.items(), key=lambda pair: order(pair[1].client))
        lengths = {node: math.sqrt(self._squares[node].sum()) for node, _ in by_node}
        # Who has more data may go further: more than it is believed to have, that is.
        before = self.roster.examples
        said = {
            c.client: min(c.examples, SUDDEN * (before.get(c.client) or math.inf))
            for _, c in by_node
        }
        counted, _ = self.examples_limit.counted(said)
        examples = {node: counted[contribution.client] for node, contribution in by_node}
        refused, self.guard = self.guard.judge(lengths, examples)
        for node in [node for node in self._contributions if node in refused]:
            client = self._contributions.pop(node).client
            self._refusals[node] = Refusal(refused[node], client)
            self._absurd.add(client)

    def _tell_roster(self, server_round: int) -> list[str]:
        """What the roster learns of the round; a sentence on each client whose word it doubts."""
        said = []
        for node, contribution in self._contributions.items():
            client, examples = contribution.client, contribution.examples
            said.append(self.roster.answered(node, client, examples, server_round))
            self.roster.heard[client] = server_round
        for node, refusal in self._refusals.items():
            if refusal.silent:
                self.roster.silent(node, server_round)
            elif node in self._asked:
                self.roster.spoke(node)
                if refusal.client is not None and refusal.examples is not None:
                    client, examples = refusal.client, refusal.examples
                    said.append(self.roster.answered(node, client, examples, server_round))
        return sorted(filter(None, said))

    def _name_the_lost(self, answered: set[str]) -> tuple[dict[str, str], dict[str, int]]:
        """Lost clients' reasons, and the node whose row stands for each.

        A silent node whose client answered through another node is that client's former life: the
        client is not lost.
        """
        reasons: dict[str, str] = {}
        nodes: dict[str, int] = {}
        for node, refusal in self._refusals.items():
            client = refusal.client or self.roster.name(node)
            if client in answered:
                if refusal.silent or self._asked.get(node) is None:
                    continue
                client = unknown_client(node)
            if client not in reasons or not refusal.silent:
                reasons[client] = refusal.reason
            nodes.setdefault(client, node)
        return reasons, nodes


def _gather(matrix: NDArray[Any], sources: Sequence[int]) -> NDArray[Any]:
    """The rows `sources` of a matrix as its first rows, moved in place with one row to spare."""
    at = list(range(len(matrix)))  # which original row lies in each place
    place = list(at)  # where each original row lies
    spare: NDArray[Any] | None = None
    for target, source in enumerate(sources):
        here = place[source]
        if here == target:
            continue
        spare = np.empty_like(matrix[0]) if spare is None else spare
        spare[:] = matrix[target]
        matrix[target] = matrix[here]
        matrix[here] = spare
        moved = at[target]
        at[target], at[here] = source, moved
        place[source], place[moved] = target, here
    return matrix[: len(sources)]
